package dev.inlay;

import static org.junit.jupiter.api.Assertions.*;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Nothing stays behind: handles, memory, files, and the native library at the end of the virtual machine. */
@Timeout(600)
class CleanupTest {
  private static void collectUntil(String what, java.util.function.BooleanSupplier condition) throws InterruptedException {
    Support.await(what, () -> {
      System.gc();
      return condition.getAsBoolean();
    });
  }

  private static void useAndForget(Model model, int number) throws InterruptedException {
    Session session = model.newSession();
    session.submit(Input.tokens(1, 2, 3), Support.greedy(100_000).ignoreEos(true)).take();
    session = model.newSession();
    session.generate(Input.tokens(1, 2, 3), Support.greedy(2));
    session.fork();
    model.createPrefix("forgotten " + number, Input.tokens(4, 5));
  }

  private static void loadAndForget(Engine engine) throws InterruptedException {
    useAndForget(engine.load(Support.tiny()), 0);
  }

  @Test
  void whatIsForgottenIsReleased() throws Exception {
    int engines = Engine.OPEN.size();
    try (Engine engine = Support.engine()) {
      try (Model model = engine.load(Support.tiny())) {
        for (int i = 0; i < 10; ++i) useAndForget(model, i);
        collectUntil("sessions, requests and prefixes", () -> engine.stats().numSessions() == 0 && engine.stats().runningRequests() == 0
            && engine.stats().kvBlocksUsed() == 0);
        for (int i = 0; i < 10; ++i) {
          String name = "forgotten " + i;
          assertThrows(NotFoundException.class, () -> model.findPrefix(name));
        }
      }
      loadAndForget(engine);
      collectUntil("the model", () -> engine.stats().numModels() == 0);
      assertEquals(0, engine.stats().kvBytes());
    }
    for (int i = 0; i < 5; ++i) loadAndForget(Support.engine());
    collectUntil("engines", () -> Engine.OPEN.size() == engines);
  }

  @Test
  void tenThousandRequestsLeaveNothing() throws Exception {
    try (Engine engine = Support.engine(); Model model = engine.load(Support.tiny())) {
      // 8 KiB of options each: leaked, they would be 64 MiB by the end.
      String[] stops = new String[8];
      for (int i = 0; i < stops.length; ++i) stops[i] = ("" + i).repeat(1024);
      RequestOptions options = Support.greedy(2).logitBias(java.util.Map.of(3, 1f)).stopTokens(7, 8).logprobs(2);
      long resident = 0;
      for (int done = 0; done < 10_000; done += 50) {
        List<Session> sessions = new ArrayList<>();
        List<Request> requests = new ArrayList<>();
        for (int i = 0; i < 50; ++i) {
          Session session = model.newSession();
          sessions.add(session);
          requests.add(session.submit(Input.tokens(1 + i, 2, 3), options));
        }
        for (Request request : requests) assertEquals(2, request.result().tokens().length);
        requests.forEach(Request::close);
        sessions.forEach(Session::close);
        // Refused ones have their options too.
        try (Session session = model.newSession()) {
          assertThrows(InlayException.class, () -> session.submit(Input.tokens(1), options.copy().stop(stops).topP(-1)));
        }
        if (done == 2000) {
          System.gc();
          resident = Support.residentKib();
        }
      }
      System.gc();
      long growth = Support.residentKib() - resident;
      System.out.println("resident memory after 2000 requests " + resident + " KiB, and 8000 more: " + growth + " KiB");
      assertTrue(growth < 24 << 10, growth + " KiB more");
      assertEquals(0, engine.stats().numSessions());
      assertEquals(10_000, engine.stats().finishedRequests());
    }
  }

  @Test
  void optionsLeaveNothing() throws Exception {
    try (Engine engine = Support.engine(); Model model = engine.load(Support.tiny()); Session session = model.newSession()) {
      int[] tokens = new int[2000];
      long resident = 0;
      for (int i = 0; i < 40_000; ++i) {
        assertThrows(InvalidArgumentException.class, () -> session.quote(Input.tokens(tokens), Support.greedy(2).stopTokens(tokens)));
        if (i == 4000) resident = Support.residentKib();
      }
      // 16 kB each; such a prompt is too long.
      long growth = Support.residentKib() - resident;
      assertTrue(growth < 24 << 10, growth + " KiB more");
    }
  }

  /** Ends in the middle of a generation, with everything open. */
  static final class EndsEarly {
    public static void main(String[] arguments) throws Exception {
      Engine engine = Engine.create(Support.cpu().log(LogLevel.DEBUG, (level, message) -> {}));
      Model model = engine.load(Support.pocket());
      for (int i = 0; i < 8; ++i) model.newSession().generateAsync(Support.STORY, Support.greedy(1500).ignoreEos(true));
      model.newSession().submit(Support.STORY, Support.greedy(1500).ignoreEos(true)).take();
      System.out.println("unpacked " + arguments[0] + ": " + count(Path.of(arguments[0])));
      System.exit(3);
    }
  }

  private static long count(Path folder) throws IOException {
    try (Stream<Path> files = Files.list(folder)) {
      return files.filter(file -> file.getFileName().toString().startsWith("inlay-")).count();
    }
  }

  @Test
  void theEndInTheMiddleOfAStepIsClean(@TempDir Path folder) throws Exception {
    for (int i = 0; i < 3; ++i) {
      Support.Result result = Support.java(List.of("-Djava.io.tmpdir=" + folder, "-XX:ErrorFile=" + folder.resolve("crash")),
          EndsEarly.class, folder.toString());
      assertEquals(3, result.exit(), result.output());
      assertEquals("unpacked " + folder + ": 0", result.output().strip());
      assertFalse(Files.exists(folder.resolve("crash")));
    }
  }

  /** Runs until the engine's own thread has something to say, and its listener throws. */
  static final class LogsOnTheEnginesThread {
    public static void main(String[] arguments) {
      AtomicInteger messages = new AtomicInteger();
      LogListener listener = (level, message) -> {
        System.out.println(Thread.currentThread().getName() + ", " + level + ": " + message);
        messages.incrementAndGet();
        throw new IllegalStateException("from the log");
      };
      try (Engine engine = Engine.create(Support.cpu().log(LogLevel.WARNING, listener));
           Model model = engine.load(Support.tiny()); Session session = model.newSession()) {
        model.startRecording(Path.of(arguments[0]));
        for (int i = 0; messages.get() == 0 && i < 2000; ++i) {
          session.generate(Input.tokens(1, 2, 3), Support.greedy(100).ignoreEos(true).replace(true));
        }
        System.out.println(session.generate(Input.tokens(1, 2, 3), Support.greedy(5).ignoreEos(true)).tokens().length);
      }
    }
  }

  @Test
  void aThreadThatIsNotJavasCallsTheListener(@TempDir Path folder) throws Exception {
    // Files may not grow beyond 64 KiB there: the recording ends with a warning, in a step.
    String java = Path.of(System.getProperty("java.home"), "bin/java").toString();
    Support.Result result = Support.run(List.of("bash", "-c", "ulimit -f 64; exec \"$@\"", "bash", java, "-Xcheck:jni", "-XX:-UsePerfData",
        "-Xshare:auto", "-Dinlay.test.source=" + Support.property("inlay.test.source"),
        "-Ddev.inlay.library=" + Support.property("inlay.test.wrapper"), "-cp", System.getProperty("java.class.path"),
        LogsOnTheEnginesThread.class.getName(), folder.resolve("recording").toString()));
    assertEquals(0, result.exit(), result.output());
    assertTrue(result.output().startsWith("inlay-callback, WARNING: the recording ended"), result.output());
    assertTrue(result.output().contains("\n5\n"), result.output());
    assertFalse(result.output().contains("in native method"), result.output());
  }

  /** Prints the version, or why the library cannot be loaded. */
  static final class Loads {
    public static void main(String[] arguments) {
      try {
        System.out.println(Inlay.version());
      } catch (UnsatisfiedLinkError e) {
        System.out.println(e.getMessage());
      }
    }
  }

  @Test
  void theLibraryCanBeChosen(@TempDir Path folder) throws Exception {
    String wrapper = Support.property("inlay.test.wrapper");
    Support.Result chosen = Support.java(List.of("-Ddev.inlay.library=" + wrapper), Loads.class);
    assertEquals(Inlay.version(), chosen.output().strip());
    Support.Result none = Support.java(List.of("-Ddev.inlay.library=" + folder.resolve("none.so")), Loads.class);
    assertTrue(none.output().contains("none.so"), none.output());

    // The wrapper beside a library of an earlier ABI.
    Path copy = folder.resolve("libinlay_java.so");
    Files.copy(Path.of(wrapper), copy, StandardCopyOption.REPLACE_EXISTING);
    Files.copy(Path.of(Support.property("inlay.test.old")), folder.resolve("libinlay.so.0"));
    Support.Result old = Support.java(List.of("-Ddev.inlay.library=" + copy), Loads.class);
    assertTrue(old.output().contains("has ABI version 1, and this binding needs"), old.output());
    NativeLoader.checkAbi(7, 6, "here");
    assertThrows(UnsatisfiedLinkError.class, () -> NativeLoader.checkAbi(5, 6, "here"));

    // Where nothing can be written, it says what to do.
    Support.Result full = Support.java(List.of("-Djava.io.tmpdir=" + folder.resolve("none")), Loads.class);
    assertTrue(full.output().contains("java.io.tmpdir"), full.output());
  }
}
