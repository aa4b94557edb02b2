// Objects in several threads, arrays, direct buffers and a child process.
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.*;

public class Threads {
    static long work(int id, int scale) {
        Map<String, int[]> map = new HashMap<>();
        Random random = new Random(id);
        long sum = 0;
        for (int i = 0; i < 60_000 * scale; i++) {
            int[] array = new int[random.nextInt(200)];
            Arrays.fill(array, i);
            map.put("key" + random.nextInt(5000), array);
        }
        for (var entry : new TreeMap<>(map).entrySet()) sum = sum * 31 + entry.getKey().hashCode() + Arrays.hashCode(entry.getValue());
        ByteBuffer direct = ByteBuffer.allocateDirect(6 << 20);
        for (int i = 0; i < direct.capacity(); i += 64) direct.put(i, (byte) (i * id));
        for (int i = 0; i < direct.capacity(); i += 64) sum += direct.get(i);
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        int scale = Integer.parseInt(arguments[0]);
        ExecutorService pool = Executors.newFixedThreadPool(6);
        List<Future<Long>> results = new ArrayList<>();
        for (int id = 0; id < 6; id++) {
            int own = id;
            results.add(pool.submit(() -> work(own, scale)));
        }
        Process child = new ProcessBuilder("sh", "-c", "cat | cksum").start();
        try (var to = child.getOutputStream()) { to.write(new byte[3 << 20]); }
        System.out.print("child " + new String(child.getInputStream().readAllBytes()));
        for (var result : results) System.out.println(result.get());
        pool.shutdown();
        System.gc();
        System.exit(21);
    }
}
