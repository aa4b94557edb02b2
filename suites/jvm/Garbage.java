import java.util.HashMap;
import java.util.SplittableRandom;

/** Keeps 300 000 small objects alive in a map and replaces them: most of the time goes into allocation and collection. */
public class Garbage {
    record Item(long key, byte[] value) {}

    public static void main(String[] words) {
        int rounds = Integer.parseInt(words[0]), live = 300_000;
        var map = new HashMap<Long, Item>();
        var random = new SplittableRandom(1);
        long sum = 0;
        for (int i = 0; i < rounds * live; i++) {
            long key = random.nextLong(live);
            Item old = map.put(key, new Item(i, new byte[64 + random.nextInt(256)]));
            sum += old == null ? 0 : old.value.length + old.key;
        }
        System.out.println(sum);
    }
}
