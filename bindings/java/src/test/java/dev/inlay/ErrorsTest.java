package dev.inlay;

import static org.junit.jupiter.api.Assertions.*;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** What goes wrong arrives typed, and never in the virtual machine. */
@Timeout(600)
class ErrorsTest {
  @Test
  void everyCodeHasItsException() {
    for (Status status : Status.values()) {
      InlayException e = InlayException.of(status.ordinal(), "m");
      assertEquals(status, e.status());
      assertEquals("INLAY_" + status.name(), e.codeName());
      assertEquals("m", e.getMessage());
    }
    InlayException later = InlayException.of(4711, "m");
    assertEquals(Status.INTERNAL, later.status());
    assertEquals(4711, later.code());
    assertEquals("unknown status", later.codeName());
    assertInstanceOf(ResourceExhaustedException.class, InlayException.of(7, ""));
    assertInstanceOf(DeviceLostException.class, InlayException.of(14, ""));
  }

  @Test
  void errorsSayWhatIsWrong(@TempDir Path folder) throws IOException {
    try (Engine engine = Support.engine(); Model model = engine.load(Support.pocket()); Session session = model.newSession()) {
      Exception e = assertThrows(NotFoundException.class, () -> engine.load("/nowhere/\uD83D\uDE00"));
      assertTrue(e.getMessage().contains("/nowhere/\uD83D\uDE00"), e.getMessage());
      Path broken = folder.resolve("broken.gguf");
      Files.write(broken, new byte[100]);
      assertThrows(InvalidArgumentException.class, () -> engine.load(broken));
      e = assertThrows(InvalidArgumentException.class, () -> session.submit("x", new RequestOptions().topP(-3)));
      assertTrue(e.getMessage().contains("top_p"), e.getMessage());
      assertThrows(InvalidArgumentException.class, () -> session.submit("x", new RequestOptions().temperature(Double.NaN)));
      assertThrows(InvalidArgumentException.class, () -> session.submit(Input.tokens(1 << 20), Support.greedy(1)));
      assertThrows(InvalidArgumentException.class, () -> model.detokenize(-1));
      assertThrows(ResourceExhaustedException.class, () -> engine.load(Support.pocket(), new ModelOptions().kvBudget(1 << 14))
          .newSession().submit(Support.STORY, Support.greedy(1500)));
      assertThrows(UnsupportedException.class, () -> engine.load(Support.tiny()).tokenize("x"));
      assertThrows(InvalidArgumentException.class, () -> Engine.create(new EngineOptions().threads(5000)));
      assertThrows(IllegalArgumentException.class, () -> new EngineOptions().memoryBudget(-1));
      assertThrows(IllegalArgumentException.class, () -> new RequestOptions().deadline(Duration.ofSeconds(-1)));
      assertThrows(IllegalArgumentException.class, () -> engine.load("a\0b"));
      assertThrows(NullPointerException.class, () -> session.submit((String) null));
      assertThrows(NullPointerException.class, () -> engine.load((String) null));
      // Arrays go to JNI as they are, whose functions end the process.
      assertThrows(NullPointerException.class, () -> model.detokenize((int[]) null));
      assertThrows(NullPointerException.class, () -> model.restore((byte[]) null));
      // Nothing of it did harm.
      assertEquals(4, session.generate(Support.STORY, Support.greedy(4)).tokens().length);
    }
  }

  @Test
  void useAfterCloseIsAnIllegalState() {
    Engine engine = Support.engine();
    Model model = engine.load(Support.pocket());
    Session session = model.newSession();
    Prefix prefix = model.createPrefix("p", Input.tokens(1, 2));
    Request request = session.submit(Support.STORY, Support.greedy(1000));
    request.close();
    request.close();
    assertTrue(request.isClosed());
    prefix.close();
    session.close();
    List<Executable> uses = new ArrayList<>(List.of(request::poll, request::cancel, request::take, request::result,
        () -> request.text().toList(), () -> request.iterator().hasNext(), prefix::open, prefix::info, () -> prefix.pin(true),
        session::info, session::tokens, session::fork, session::save, () -> session.rewind(0), () -> session.submit("x"),
        () -> session.save(Path.of("x")), () -> session.quote(Input.text("x"), Support.greedy(1))));
    check(uses);
    // The model goes on for what holds it.
    Session other = model.newSession();
    model.close();
    check(List.of(model::newSession, model::info, () -> model.tokenize("x"), () -> model.detokenize(1),
        () -> model.render(List.of()), () -> model.restore(new byte[1]), () -> model.findPrefix("p"),
        () -> other.submit("x", model.requestOptions())));
    assertEquals(4, other.generate(Support.STORY, Support.greedy(4)).tokens().length);
    engine.close();
    assertTrue(engine.isClosed());
    check(List.of(engine::stats, engine::step, engine::metrics, engine::device, () -> engine.load(Support.pocket()),
        () -> engine.setMemoryBudget(0), () -> engine.startTrace(1), other::info, () -> other.submit("x")));
    other.close();
  }

  private static void check(List<Executable> uses) {
    for (Executable use : uses) {
      String message = assertThrows(IllegalStateException.class, use).getMessage();
      assertTrue(message.contains("closed"), message);
    }
  }

  @Test
  void listenersMayThrow() {
    AtomicInteger messages = new AtomicInteger();
    List<String> texts = Collections.synchronizedList(new ArrayList<>());
    EngineOptions options = Support.cpu().log(LogLevel.DEBUG, (level, message) -> {
      texts.add(level + " " + message);
      if (messages.getAndIncrement() % 2 == 0) throw new IllegalStateException("from the log");
      throw new StackOverflowError();
    });
    try (Engine engine = Engine.create(options)) {
      List<LoadStage> stages = new ArrayList<>();
      try (Model model = engine.load(Support.pocket(), new ModelOptions().progress((stage, fraction) -> {
        assertTrue(fraction >= 0 && fraction <= 1);
        stages.add(stage);
        return true;
      }))) {
        assertEquals(LoadStage.CONFIG, stages.get(0));
        assertEquals(LoadStage.READY, stages.get(stages.size() - 1));
        try (Session session = model.newSession()) {
          assertEquals(4, session.generate(Support.STORY, Support.greedy(4)).tokens().length);
        }
      }
      assertTrue(messages.get() > 0, "there was no log");
      assertTrue(texts.stream().allMatch(text -> text.matches("(?s)(ERROR|WARNING|INFO|DEBUG) .+")), texts.toString());

      IllegalArgumentException mine = new IllegalArgumentException("mine");
      assertSame(mine, assertThrows(IllegalArgumentException.class, () -> engine.load(Support.pocket(),
          new ModelOptions().progress((stage, fraction) -> {
            throw mine;
          }))));
      assertThrows(AssertionError.class, () -> engine.load(Support.pocket(), new ModelOptions().progress((stage, fraction) -> {
        throw new AssertionError();
      })));
      assertThrows(CancelledException.class,
          () -> engine.load(Support.pocket(), new ModelOptions().progress((stage, fraction) -> false)));
      assertEquals(0, engine.stats().numModels());
    }
  }

  @Test
  void listenersMustNotCallInlay() {
    try (Engine engine = Support.engine()) {
      ModelOptions options = new ModelOptions().progress((stage, fraction) -> engine.stats() != null);
      String message = assertThrows(IllegalStateException.class, () -> engine.load(Support.pocket(), options)).getMessage();
      assertTrue(message.contains("listener"), message);
      assertThrows(IllegalStateException.class, () -> engine.load(Support.pocket(), new ModelOptions().progress((stage, fraction) -> {
        engine.close();
        return true;
      })));
      assertFalse(engine.isClosed());
      assertEquals(0, engine.stats().numModels());
    }
  }
}
