package dev.inlay;

import static org.junit.jupiter.api.Assertions.*;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Vectors of texts: the C API's, whatever else runs. */
class EmbedTest {
  private static final List<String> TEXTS =
      List.of("A fox.", "H\u00f6her als der Mond \uD83C\uDF19", "A lantern in the woods, and nobody near it.");

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

  private static EmbeddingOptions mean() {
    return new EmbeddingOptions().mode(EmbeddingMode.MEAN).normalise(true);
  }

  private static List<String> someTexts(int count) {
    return IntStream.range(0, count).mapToObj(i -> "Fox " + i + " has a lantern".repeat(i % 17)).toList();
  }

  private static float[] alone(String text, EmbeddingOptions options) {
    return model.embed(List.of(text), options).get(0);
  }

  @Test
  void valuesAreThoseOfTheCApi() throws Exception {
    for (EmbeddingMode mode : EmbeddingMode.values()) {
      if (mode == EmbeddingMode.NONE) continue;
      boolean normalise = mode == EmbeddingMode.MEAN;
      List<float[]> vectors = model.embed(TEXTS, new EmbeddingOptions().mode(mode).normalise(normalise));
      assertEquals(TEXTS.size(), vectors.size());
      for (int i = 0; i < TEXTS.size(); ++i) {
        List<String> lines = Support.reference(
            Support.pocket(), "embed", "" + mode.ordinal(), normalise ? "1" : "0", TEXTS.get(i));
        assertEquals(model.info().hiddenSize(), lines.size());
        float[] expected = new float[lines.size()];
        for (int j = 0; j < expected.length; ++j) expected[j] = Float.parseFloat(lines.get(j));
        assertArrayEquals(expected, vectors.get(i), mode + " of " + TEXTS.get(i));
      }
    }
    double squares = 0;
    for (float x : alone("A fox.", mean())) squares += (double) x * x;
    assertEquals(1.0, squares, 1e-6);
    assertArrayEquals(alone("A fox.", new EmbeddingOptions()), alone("A fox.", new EmbeddingOptions().mode(EmbeddingMode.LAST)));
  }

  // More than the engine's queue takes, and than are under way at once.
  @Test
  void sideBySideIsAsAlone() throws Exception {
    List<String> texts = someTexts(30);
    try (Engine few = Engine.create(Support.cpu().maxRunning(4).maxQueue(8)); Model other = few.load(Support.pocket())) {
      List<float[]> vectors = other.embed(texts, mean());
      for (int i = 0; i < texts.size(); ++i) assertArrayEquals(alone(texts.get(i), mean()), vectors.get(i), texts.get(i));
      assertEquals(30, few.stats().finishedRequests());
      Support.await("the sessions are closed", () -> few.stats().numSessions() == 0);
    }
    try (Model tiny = engine.load(Support.tiny())) {
      List<Input> inputs = new ArrayList<>();
      for (int i = 0; i < 600; ++i) inputs.add(Input.tokens(IntStream.rangeClosed(0, i % 40).toArray()));
      List<float[]> vectors = tiny.embedInputs(inputs, new EmbeddingOptions());
      assertEquals(600, vectors.size());
      for (int i = 40; i < 600; ++i) assertArrayEquals(vectors.get(i % 40), vectors.get(i), "input " + i);
    }
  }

  @Test
  void hostDriven() throws Exception {
    List<String> texts = someTexts(20);
    List<float[]> expected = model.embed(texts, mean());
    try (Engine host = Engine.create(Support.cpu().drive(Drive.HOST)); Model other = host.load(Support.pocket())) {
      List<float[]> vectors = other.embed(texts, mean());
      for (int i = 0; i < texts.size(); ++i) assertArrayEquals(expected.get(i), vectors.get(i), texts.get(i));
      vectors = other.embedAsync(texts, mean()).get();
      for (int i = 0; i < texts.size(); ++i) assertArrayEquals(expected.get(i), vectors.get(i), texts.get(i));
    }
  }

  @Test
  void onOtherThreads() throws Exception {
    List<String> texts = someTexts(20);
    List<float[]> expected = model.embed(texts, mean());
    List<CompletableFuture<List<float[]>>> futures = new ArrayList<>();
    for (int i = 0; i < 4; ++i) futures.add(model.embedAsync(texts, mean()));
    for (CompletableFuture<List<float[]>> future : futures) {
      List<float[]> vectors = future.get();
      for (int i = 0; i < texts.size(); ++i) assertArrayEquals(expected.get(i), vectors.get(i), texts.get(i));
    }
    CompletableFuture<List<float[]>> failing = model.embedAsync(List.of("A fox.", "A fox. ".repeat(3000)), mean());
    assertInstanceOf(InvalidArgumentException.class, assertThrows(CompletionException.class, failing::join).getCause());

    long cancelled = engine.stats().cancelledRequests();
    CompletableFuture<List<float[]>> future = model.embedAsync(Collections.nCopies(2000, "A fox has a lantern. ".repeat(60)), mean());
    Support.await("it runs", () -> engine.stats().runningRequests() > 0);
    assertTrue(future.cancel(true));
    Support.await("nothing is left", () -> engine.stats().runningRequests() == 0 && engine.stats().waitingRequests() == 0
        && engine.stats().numSessions() == 0);
    assertTrue(engine.stats().cancelledRequests() > cancelled);
  }

  @Test
  void inASession() throws Exception {
    float[] expected = alone("A fox.", mean());
    RequestOptions options = new RequestOptions().embedding(EmbeddingMode.MEAN).normalise(true);
    try (Session session = model.newSession(); Request request = session.submit("A fox.", options)) {
      assertArrayEquals(expected, assertInstanceOf(Event.Embedding.class, request.take()).vector());
      assertEquals(0, assertInstanceOf(Event.Finished.class, request.take()).generatedTokens());
      assertThrows(NoSuchElementException.class, request::embedding);
    }
    try (Session session = model.newSession()) {
      try (Request request = session.submit("A fox.", options)) {
        assertArrayEquals(expected, request.embedding());
      }
      // The log goes on, and a decoder still generates.
      assertEquals(4, session.generate(" It", Support.greedy(4)).tokens().length);
      try (Request request = session.submit(" and", Support.greedy(4))) {
        assertThrows(NoSuchElementException.class, request::embedding);
      }
    }
  }

  private static float[] array(String object, String name) {
    Matcher matcher = Pattern.compile("\"" + name + "\": ?\\[([^\\[\\]]*)\\]").matcher(object);
    assertTrue(matcher.find(), name);
    String[] values = matcher.group(1).split(",");
    float[] array = new float[values.length];
    for (int i = 0; i < array.length; ++i) array[i] = Float.parseFloat(values[i].trim());
    return array;
  }

  private static int[] ints(float[] values) {
    return IntStream.range(0, values.length).map(i -> (int) values[i]).toArray();
  }

  /** A cross-encoder: what transformers gives for single texts and for pairs, of text and of tokens. */
  @Test
  void labels() throws Exception {
    Path path = Path.of(Support.property("inlay.test.source"), "tests/data/models/bert_reranker");
    Pattern texts = Pattern.compile("\"text\":\"([^\"]*)\"(?:,\"text_pair\":\"([^\"]*)\")?");
    try (Model reranker = engine.load(path.toString())) {
      int pairs = 0;
      for (String one : Files.readString(path.resolve("golden.json")).split("\"name\":\"(?=single|pair|len)")) {
        if (!one.contains("\"input_ids\"")) continue;
        float[] logits = array(one, "logits");
        Input tokens = Input.tokens(ints(array(one, "input_ids")), ints(array(one, "token_type_ids")));
        assertArrayEquals(logits, reranker.classify(List.of(tokens), ClassificationMode.LOGITS).get(0), 5e-5f);
        Matcher text = texts.matcher(one);
        if (!text.find()) continue;
        Input input = text.group(2) == null ? Input.text(text.group(1)) : Input.pair(text.group(1), text.group(2));
        assertArrayEquals(logits, reranker.classify(List.of(input), ClassificationMode.LOGITS).get(0), 5e-5f);
        if (text.group(2) == null) continue;
        ++pairs;
        // One label: the sigmoid is the default.
        float score = reranker.classifyPairs(text.group(1), List.of(text.group(2)), ClassificationMode.DEFAULT).get(0)[0];
        assertEquals(1 / (1 + Math.exp(-logits[0])), score, 5e-5);
      }
      assertEquals(5, pairs);
      assertThrows(IllegalArgumentException.class, () -> reranker.classify(List.of(), ClassificationMode.NONE));
      assertThrows(IllegalArgumentException.class, () -> Input.tokens(new int[2], new int[3]));
    }
    assertThrows(InvalidArgumentException.class, () -> model.classify(List.of(Input.text("A fox.")), ClassificationMode.DEFAULT));
    assertThrows(InvalidArgumentException.class, () -> model.classifyPairs("A fox.", List.of("A den."), ClassificationMode.DEFAULT));
    assertThrows(IllegalArgumentException.class, () -> model.createPrefix("pair", Input.pair("A fox.", "A den.")));
  }

  @Test
  void encoder() throws Exception {
    Path path = Path.of(Support.property("inlay.test.source"), "tests/data/models/bert");
    String golden = Files.readString(path.resolve("golden.json"));
    try (Model bert = engine.load(path.toString())) {
      int checked = 0;
      for (String one : golden.split("\"name\": ?\"len")) {
        if (!one.contains("\"input_ids\"")) continue;
        float[] ids = array(one, "input_ids");
        Input input = Input.tokens(ints(ids), ints(array(one, "token_type_ids")));
        for (EmbeddingMode mode : List.of(EmbeddingMode.MEAN, EmbeddingMode.CLS, EmbeddingMode.DEFAULT)) {
          // The model's files ask for the mean, normalised. The goldens' README has the tolerance.
          float[] expected = array(one, switch (mode) {
            case MEAN -> "mean_pooled";
            case CLS -> "cls";
            default -> "mean_pooled_normalised";
          });
          assertArrayEquals(expected, bert.embedInputs(List.of(input), new EmbeddingOptions().mode(mode)).get(0), 1e-4f, mode + " " + ids.length);
        }
        ++checked;
      }
      assertTrue(checked >= 3, checked + " cases");
      try (Session session = bert.newSession()) {
        InlayException e = assertThrows(InvalidArgumentException.class, () -> session.generate(Input.tokens(1, 2, 3), Support.greedy(4)));
        assertTrue(e.getMessage().contains("encoder"), e.getMessage());
      }
      assertThrows(UnsupportedException.class, () -> bert.embed(List.of("text"), new EmbeddingOptions()));
    }
  }

  @Test
  void errors() throws Exception {
    assertEquals(List.of(), model.embed(List.of(), new EmbeddingOptions()));
    assertThrows(InvalidArgumentException.class, () -> model.embed(List.of("A fox.", "A fox. ".repeat(3000), "A fox."), mean()));
    assertThrows(IllegalArgumentException.class, () -> mean().mode(EmbeddingMode.NONE));
    try (Session session = model.newSession()) {
      RequestOptions both = Support.greedy(4).embedding(EmbeddingMode.MEAN);
      InlayException e = assertThrows(InvalidArgumentException.class, () -> session.submit("A fox.", both));
      assertTrue(e.getMessage().contains("max_tokens"), e.getMessage());
    }
    Thread.currentThread().interrupt();
    assertThrows(CancelledException.class, () -> model.embed(List.of("A fox."), mean()));
    assertTrue(Thread.interrupted());
    Model closed = engine.load(Support.small());
    closed.close();
    assertThrows(IllegalStateException.class, () -> closed.embed(List.of("A fox."), mean()));
    Support.await("nothing is left", () -> engine.stats().numSessions() == 0 && engine.stats().runningRequests() == 0);
  }
}
