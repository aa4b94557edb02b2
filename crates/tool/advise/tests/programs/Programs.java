import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Random;

/** Random accesses to an array of objects, for scripts/advise-check: SECONDS [COUNTER], as programs.c. */
final class Programs {
    static final class Item {
        long value;
        Item(long value) { this.value = value; }
    }

    public static void main(String[] words) throws java.io.IOException {
        double seconds = Double.parseDouble(words[0]);
        Item[] items = new Item[12_000_000];
        for (int i = 0; i < items.length; i++) items[i] = new Item(i);
        Random random = new Random(1);
        long sum = 0;
        for (int round = 0; round < 20; round++) sum += work(items, random);
        ByteBuffer counter = ByteBuffer.allocate(16);
        if (words.length > 1) {
            try (var file = FileChannel.open(Path.of(words[1]), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
                counter = file.map(FileChannel.MapMode.READ_WRITE, 0, 16);
            }
        }
        counter.order(ByteOrder.nativeOrder());
        System.out.println("ready");
        System.out.flush();
        java.lang.management.ThreadMXBean threads = java.lang.management.ManagementFactory.getThreadMXBean();
        long begun = threads.getCurrentThreadCpuTime(), done = 0, now = begun;
        while (seconds == 0 || now - begun < seconds * 1e9) {
            sum += work(items, random);
            done += 1 << 18;
            now = threads.getCurrentThreadCpuTime();
            counter.putLong(0, done).putLong(8, now - begun);
        }
        System.out.println("rate " + (long) (done / ((now - begun) * 1e-9)) + " " + sum);
    }

    static long work(Item[] items, Random random) {
        long sum = 0;
        for (int i = 0; i < 1 << 18; i++) sum += items[random.nextInt(items.length)].value++;
        return sum;
    }
}
