package dev.inlay;

import static org.junit.jupiter.api.Assertions.*;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What a session keeps: fork, rewind, prefixes, snapshots, quotes. */
class SessionTest {
  private static Engine engine;
  private static Model model;

  @BeforeAll
  static void load() {
    engine = Support.engine();
    model = engine.load(Support.pocket());
  }

  @AfterAll
  static void close() {
    model.close();
    engine.close();
  }

  @Test
  void hostCachesAreInTheFigures() {
    assertEquals(0, engine.stats().hostCacheBudgetBytes());
    try (Model cached = engine.load(Support.pocket(), new ModelOptions().hostCache(16 << 20))) {
      Stats stats = engine.stats();
      assertTrue(stats.hostCacheBudgetBytes() > 15 << 20 && stats.hostCacheBudgetBytes() <= 16 << 20, stats.toString());
      assertEquals(0, stats.hostCacheBytes() + stats.hostCachePeakBytes() + stats.diskCacheBytes()
          + stats.diskCacheBudgetBytes() + stats.expertHostBytes());
    }
  }

  @Test
  void forkGoesItsOwnWay() {
    try (Session session = model.newSession()) {
      session.generate(Support.STORY, Support.greedy(16));
      int[] log = session.tokens();
      try (Session fork = session.fork()) {
        assertArrayEquals(log, fork.tokens());
        Generation one = session.generate(" Then", Support.greedy(12));
        assertArrayEquals(log, fork.tokens());
        Generation other = fork.generate(" But", Support.greedy(12));
        assertFalse(Arrays.equals(session.tokens(), fork.tokens()));
        assertTrue(other.finished().cachedTokens() >= log.length - 1, "the fork shares what is cached");
        try (Session again = model.newSession()) {
          Input whole = Input.tokens(log);
          again.generate(whole, Support.greedy(0));
          assertEquals(one.text(), again.generate(" Then", Support.greedy(12)).text());
        }
      }
    }
  }

  @Test
  void rewindForgets() {
    try (Session session = model.newSession()) {
      Generation first = session.generate(Support.STORY, Support.greedy(16));
      long prompt = first.finished().promptTokens();
      SessionInfo info = session.info();
      assertEquals(prompt + 16, info.numTokens());
      assertFalse(info.busy());
      session.rewind(prompt - 1);
      assertEquals(prompt - 1, session.tokens().length);
      Generation again = session.generate(Input.text(",", false, false), Support.greedy(16));
      assertArrayEquals(first.tokens(), again.tokens());
      assertThrows(InvalidArgumentException.class, () -> session.rewind(1000));
      assertThrows(IllegalArgumentException.class, () -> session.rewind(-1));
    }
  }

  @Test
  void replaceKeepsTheCommonStart() {
    try (Session session = model.newSession()) {
      Generation one = session.generate("Once upon a time, a fox", Support.greedy(8));
      Generation other = session.generate("Once upon a time, a bear", Support.greedy(8).replace(true));
      assertTrue(other.finished().cachedTokens() > 0);
      assertEquals(other.finished().promptTokens() + 8, session.info().numTokens());
      assertNotEquals(one.text(), other.text());
    }
  }

  @Test
  void namedPrefixesAreShared() throws Exception {
    Input system = Input.chat(Chat.of(Message.system("You help.".repeat(10))));
    try (Prefix prefix = model.createPrefix("system \uD83D\uDE00", system)) {
      assertEquals("system \uD83D\uDE00", prefix.name());
      // A last token that has a block for itself is computed again.
      Support.await("pinned", () -> prefix.info().numCached() >= prefix.info().numTokens() - 1);
      PrefixInfo info = prefix.info();
      assertTrue(info.pinned() && info.numTokens() > 20 && info.kvBytes() > 0);
      assertThrows(InvalidStateException.class, () -> model.createPrefix(prefix.name(), system));
      try (Prefix found = model.findPrefix(prefix.name()); Session session = found.open()) {
        assertEquals(info.numTokens(), session.info().numTokens());
        Input question = Input.text("<|user|>What is 2 plus 3?<|end|><|assistant|>", false, true);
        Generation answer = session.generate(question, Support.greedy(16));
        assertTrue(answer.text().contains("5"), answer.text());
        assertTrue(answer.finished().cachedTokens() >= info.numTokens() - 1);
      }
      prefix.pin(false);
      assertFalse(prefix.info().pinned());
    }
    assertThrows(NotFoundException.class, () -> model.findPrefix("system \uD83D\uDE00"));
    try (Prefix tokens = model.createPrefix("tokens", Input.tokens(1, 2, 3), false, 0)) {
      assertEquals(3, tokens.info().numTokens());
      assertArrayEquals(new int[] {1, 2, 3}, tokens.open().tokens());
    }
  }

  @Test
  void snapshotsGoOnExactly(@TempDir Path folder) throws Exception {
    RequestOptions sampled = new RequestOptions().maxTokens(12).temperature(0.8).seed(3);
    Path file = folder.resolve("sn\u00e4pshot");
    byte[] bytes;
    String expected;
    int[] log;
    try (Session session = model.newSession()) {
      session.generate(Support.STORY, sampled);
      session.save(file);
      bytes = session.save();
      log = session.tokens();
      assertTrue(session.restored().isEmpty());
      expected = session.generate(Input.tokens(), sampled.copy().resume(true)).text();
    }
    assertArrayEquals(Files.readAllBytes(file), bytes);
    try (Session fromFile = model.restore(file); Session fromBytes = model.restore(bytes)) {
      assertArrayEquals(log, fromFile.tokens());
      assertEquals(log.length, fromFile.restored().orElseThrow().numTokens());
      assertEquals("", fromFile.restored().orElseThrow().note());
      assertTrue(fromFile.restored().orElseThrow().numRestored() > 0);
      assertEquals(expected, fromFile.generate(Input.tokens(), sampled.copy().resume(true)).text());
      assertEquals(expected, fromBytes.generate(Input.tokens(), sampled.copy().resume(true)).text());
    }
    // Damage is found, and what it hit is computed again.
    bytes[bytes.length / 2] ^= 1;
    try (Session damaged = model.restore(bytes)) {
      assertFalse(damaged.restored().orElseThrow().note().isEmpty());
      assertEquals(expected, damaged.generate(Input.tokens(), sampled.copy().resume(true)).text());
    }
    assertThrows(InvalidArgumentException.class, () -> model.restore(new byte[1000]));
    assertThrows(InvalidArgumentException.class, () -> model.restore(new byte[0]));
    assertThrows(NotFoundException.class, () -> model.restore(folder.resolve("none")));
  }

  @Test
  void savingAnAnswerHalfWay() throws Exception {
    String whole;
    try (Session session = model.newSession()) {
      whole = session.generate(Support.STORY, Support.greedy(60)).text();
    }
    try (Session session = model.newSession();
         Request request = session.submit(Support.STORY, Support.greedy(60))) {
      Event.Tokens first = (Event.Tokens) request.take();
      assertThrows(InvalidStateException.class, session::save);
      assertThrows(InvalidStateException.class, session::fork);
      assertThrows(InvalidStateException.class, () -> session.submit("more"));
      request.cancel();
      Generation rest = request.result();
      String begun = first.text() + rest.text();
      int numTokens = first.ids().length + rest.tokens().length;
      try (Session restored = model.restore(session.save())) {
        Generation after = restored.generate(Input.tokens(), Support.greedy(60 - numTokens).resume(true));
        assertEquals(whole, begun + after.text());
      }
    }
  }

  @Test
  void quotesAndReservations() {
    try (Session session = model.newSession()) {
      Quote quote = session.quote(Input.text(Support.STORY), Support.greedy(100));
      assertTrue(quote.fits() && quote.fitsNow() && !quote.reserved());
      assertEquals(model.tokenize(Support.STORY).length, quote.promptTokens());
      assertTrue(quote.kvBytes() >= 100 * model.info().kvBytesPerToken());
      assertTrue(session.quote(Input.text(Support.STORY), Support.greedy(100), true).reserved());
      List<Integer> generated = Arrays.stream(session.generate(Support.STORY, Support.greedy(4)).tokens()).boxed().toList();
      assertEquals(4, generated.size());
    }
  }
}
