import java.util.SplittableRandom;

/** Reads an array of 256 MiB in random order: nothing for the collector to do. */
public class Gather {
    public static void main(String[] words) {
        int rounds = Integer.parseInt(words[0]);
        long[] array = new long[32 << 20];
        for (int i = 0; i < array.length; i++) {
            array[i] = i;
        }
        var random = new SplittableRandom(1);
        long sum = 0;
        for (int i = 0; i < rounds * 1_000_000; i++) {
            sum += array[random.nextInt() & (array.length - 1)];
        }
        System.out.println(sum);
    }
}
