# Hashes, sorting, strings, and a child over a pipe.
use strict;
use warnings;
use Digest::MD5 qw(md5_hex);

my $scale = shift;
my %count;
my ($seed, @words) = (1);
for (1 .. 60_000 * $scale) {
    $seed = ($seed * 1103515245 + 12345) % 2147483648;
    my $word = sprintf("w%d", $seed % 20011);
    $count{$word}++;
    push @words, $word . ("x" x ($seed % 60));
}
my $sorted = join ",", map { "$_=$count{$_}" } sort keys %count;
print "hash ", md5_hex($sorted), "\n";
print "list ", md5_hex(join "", reverse sort @words), "\n";
my $long = "ab" x (3_000_000 * $scale);
(my $changed = $long) =~ s/ba/c/g;
print "string ", length($changed), " ", md5_hex($changed), "\n";
for my $round (1 .. 10) {
    my $pid = open(my $from, "-|") // die "no fork: $!";
    if (!$pid) {
        $count{child} = $round;
        print md5_hex(join ",", map { "$_=$count{$_}" } sort keys %count), "\n";
        exit $round;
    }
    print "child $round ", <$from>;
    close $from;
    print "ended ", $? >> 8, "\n";
}
exit 3;
