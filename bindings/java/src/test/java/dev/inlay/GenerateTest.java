package dev.inlay;

import static org.junit.jupiter.api.Assertions.*;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** One request at a time: inputs, options, and every way of reading what comes out. */
class GenerateTest {
  private static final String EMOJI = "\uD83D\uDE00 \uD834\uDD1E caf\u00e9 \u4f60\u597d";

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

  private static Generation generate(String text, RequestOptions options) {
    try (Session session = model.newSession()) {
      return session.generate(text, options);
    }
  }

  @Test
  void tokensAreThoseOfTheCApi() throws Exception {
    for (String prompt : List.of(Support.STORY, "<|user|>What is 12 plus 30?<|end|><|assistant|>", "The " + EMOJI)) {
      int[] expected = Support.reference(Support.pocket(), "tokens", "64", prompt).stream()
          .mapToInt(Integer::parseInt).toArray();
      assertArrayEquals(expected, generate(prompt, Support.greedy(64)).tokens(), prompt);
    }
  }

  @Test
  void streamedPiecesJoinToTheWholeText() throws Exception {
    Generation whole = generate(Support.STORY, Support.greedy(48));
    assertEquals(FinishReason.LENGTH, whole.reason());
    assertEquals(48, whole.tokens().length);
    assertEquals(48, whole.finished().generatedTokens());
    assertTrue(whole.finished().totalMicros() >= whole.finished().firstTokenMicros());
    assertFalse(whole.text().isBlank());

    try (Session session = model.newSession();
         var pieces = session.submit(Support.STORY, Support.greedy(48)).text()) {
      List<String> all = pieces.toList();
      assertTrue(all.size() > 1, "it came in one piece");
      assertEquals(whole.text(), String.join("", all));
    }
    try (Session session = model.newSession();
         Request request = session.submit(Support.STORY, Support.greedy(48))) {
      StringBuilder text = new StringBuilder();
      List<Integer> tokens = new ArrayList<>();
      for (Event event : request) {
        if (event instanceof Event.Tokens some) {
          text.append(some.text());
          Arrays.stream(some.ids()).forEach(tokens::add);
        }
      }
      assertEquals(whole.text(), text.toString());
      assertArrayEquals(whole.tokens(), tokens.stream().mapToInt(Integer::intValue).toArray());
      assertTrue(request.isFinished());
      assertNull(request.poll());
      assertNull(request.poll(Duration.ofMillis(1)));
      assertThrows(NoSuchElementException.class, request::take);
      assertFalse(request.iterator().hasNext());
    }
  }

  @Test
  void losingTheSessionDoesNotDisturbItsRequest() {
    String whole = generate(Support.STORY, Support.greedy(40)).text();
    StringBuilder text = new StringBuilder();
    Iterator<String> pieces = model.newSession().submit(Support.STORY, Support.greedy(40)).text().iterator();
    while (pieces.hasNext()) {
      text.append(pieces.next());
      System.gc();
    }
    assertEquals(whole, text.toString());
  }

  @Test
  void chatIsTheRenderedTemplate() {
    List<Message> messages = List.of(Message.system("You help."), Message.user("What is 2 plus 3?"));
    String rendered = model.render(messages);
    assertEquals("<|bos|><|system|>You help.<|end|><|user|>What is 2 plus 3?<|end|><|assistant|>", rendered);
    try (Session session = model.newSession(); Session other = model.newSession()) {
      Generation answer;
      try (Request request = session.chat(messages, Support.greedy(32))) {
        answer = request.result();
      }
      assertEquals(FinishReason.STOP, answer.reason());
      assertTrue(answer.text().contains("5"), answer.text());
      assertEquals(answer.text(), other.generate(Input.text(rendered, false, true), Support.greedy(32)).text());

      // The next turn is the whole conversation again; what the session has stays cached.
      List<Message> next = new ArrayList<>(messages);
      next.add(Message.assistant(answer.text()));
      next.add(Message.user("What is 4 plus 4?"));
      Generation second = session.generate(Input.chat(next), Support.greedy(32));
      assertTrue(second.text().contains("8"), second.text());
      assertTrue(second.finished().cachedTokens() >= answer.finished().promptTokens());
    }
  }

  @Test
  void chatVariablesReachTheTemplate() {
    Chat chat = Chat.of(Message.user("hi")).set("template", "{{ names | join('+') }}:{{ messages[0].content }}:{{ deep.a }}")
        .set("names", List.of("a\"\\\n\u0001", EMOJI)).set("deep", Map.of("a", 1.5));
    Chat begun = Chat.of(Message.user("hi"), Message.assistant("Well,")).continueFinalMessage(true)
        .set("template", "{% for m in messages %}<{{ m.content }}>{% endfor %}");
    assertEquals("<hi><Well,", model.render(begun));
    assertEquals("a\"\\\n\u0001+" + EMOJI + ":hi:1.5", model.render(chat));
    assertThrows(IllegalArgumentException.class, () -> chat.set("x", new Object()));
    assertThrows(IllegalArgumentException.class, () -> chat.set("x", Double.NaN));
  }

  @Test
  void textOutsideTheBasicPlaneCrossesBothWays() {
    int[] tokens = model.tokenize(EMOJI, false, false);
    assertEquals(EMOJI, model.detokenize(tokens));
    assertTrue(model.render(List.of(Message.user(EMOJI))).contains(EMOJI));
  }

  @Test
  void emojiThatSpansTokensIsNeverCut() {
    String emoji = "\uD83D\uDE00";
    int[] tokens = model.tokenize(emoji, false, false);
    assertTrue(tokens.length > 1, "the tokenizer has it whole, so this tests nothing");
    // A grammar of one sentence by bias: after token i only token i + 1 is likely, since bias outweighs any logit and penalties
    // take out what was there.
    Map<Integer, Float> bias = new HashMap<>();
    for (int i = 0; i < tokens.length; ++i) bias.put(tokens[i], 1e5f - 100 * i);
    try (Session session = model.newSession();
         Request request = session.submit("x", new RequestOptions().maxTokens(tokens.length).logitBias(bias).presencePenalty(900))) {
      StringBuilder text = new StringBuilder();
      List<Byte> bytes = new ArrayList<>();
      for (Event event : request) {
        if (event instanceof Event.Tokens some) {
          assertFalse(some.text().contains("\uFFFD"), "a part of a code point");
          text.append(some.text());
          for (byte b : some.bytes()) bytes.add(b);
        }
      }
      assertEquals(emoji, text.toString());
      byte[] raw = new byte[bytes.size()];
      for (int i = 0; i < raw.length; ++i) raw[i] = bytes.get(i);
      assertArrayEquals(Text.bytes(emoji), raw);
    }
  }

  @Test
  void unpairedSurrogatesAndNulsAreText() {
    assertEquals("a?b", model.detokenize(model.tokenize("a\uD83Db", false, false)));
    assertEquals("a\0b", model.detokenize(model.tokenize("a\0b", false, false)));
  }

  @Test
  void tokenizeTakesLongTextAndSpecials() {
    String text = "1234567890".repeat(1000);
    assertEquals(10_000, model.tokenize(text, false, false).length);
    assertEquals(text, model.detokenize(model.tokenize(text)));
    assertEquals(0, model.tokenize("", false, false).length);
    assertEquals(1, model.tokenize("<|end|>", false, true).length);
    assertTrue(model.tokenize("<|end|>", false, false).length > 1);
    int[] end = model.tokenize("<|end|>", false, true);
    assertEquals("", model.detokenize(end));
    assertEquals("<|end|>", model.detokenize(end, false));
  }

  @Test
  void samplingIsReproducible() {
    RequestOptions options = new RequestOptions().maxTokens(24).temperature(1.0).topK(50).topP(0.95).minP(0.01).seed(-7)
        .repetitionPenalty(1.1).frequencyPenalty(0.1).presencePenalty(0.1);
    Generation one = generate(Support.STORY, options);
    assertArrayEquals(one.tokens(), generate(Support.STORY, options.copy()).tokens());
    assertFalse(Arrays.equals(one.tokens(), generate(Support.STORY, options.copy().seed(8)).tokens()));
    assertFalse(Arrays.equals(one.tokens(), generate(Support.STORY, Support.greedy(24)).tokens()));
  }

  @Test
  void stopsWhereAsked() {
    String whole = generate(Support.STORY, Support.greedy(48)).text();
    String stop = whole.substring(20, 24);
    Generation stopped = generate(Support.STORY, Support.greedy(48).stop("never-there", stop));
    assertEquals(FinishReason.STOP, stopped.reason());
    assertEquals(1, stopped.finished().stopString());
    assertEquals(whole.substring(0, whole.indexOf(stop)), stopped.text());

    int[] tokens = generate(Support.STORY, Support.greedy(8)).tokens();
    Generation atToken = generate(Support.STORY, Support.greedy(48).stopTokens(tokens[5]));
    assertEquals(tokens[5], atToken.finished().stopToken());
    assertEquals(FinishReason.STOP, atToken.reason());
    assertEquals(0, generate(Support.STORY, Support.greedy(0)).tokens().length);
  }

  @Test
  void biasForbids() {
    int first = generate(Support.STORY, Support.greedy(1)).tokens()[0];
    int other = generate(Support.STORY, Support.greedy(1).logitBias(Map.of(first, Float.NEGATIVE_INFINITY))).tokens()[0];
    assertNotEquals(first, other);
  }

  @Test
  void logprobsLogitsAndScoresAgree() {
    int[] prompt = model.tokenize(Support.STORY);
    try (Session session = model.newSession();
         Request request = session.submit(Input.tokens(prompt),
             Support.greedy(3).logprobs(4).logits(LogitsMode.GENERATED).scorePrompt(true))) {
      List<Event.Logits> logits = new ArrayList<>();
      List<Event.TokenLogprobs> logprobs = new ArrayList<>();
      List<Float> scores = new ArrayList<>();
      int[] tokens = new int[0];
      for (Event event : request) {
        if (event instanceof Event.Logits l) logits.add(l);
        if (event instanceof Event.Scores s) for (float score : s.scores()) scores.add(score);
        if (event instanceof Event.Tokens t) {
          logprobs.addAll(t.logprobs());
          tokens = IntStream.concat(Arrays.stream(tokens), Arrays.stream(t.ids())).toArray();
        }
      }
      assertEquals(3, logits.size());
      assertEquals(3, logprobs.size());
      assertEquals(prompt.length - 1, scores.size());
      for (int i = 0; i < 3; ++i) {
        float[] row = logits.get(i).logits();
        assertEquals(model.info().vocabSize(), row.length);
        assertEquals(prompt.length - 1 + i, logits.get(i).position());
        double sum = 0;
        for (float logit : row) sum += Math.exp(logit - row[tokens[i]]);
        Event.TokenLogprobs of = logprobs.get(i);
        assertEquals(tokens[i], of.chosen().token());
        assertEquals(-Math.log(sum), of.chosen().logprob(), 1e-3);
        assertEquals(4, of.alternatives().size());
        assertEquals(of.chosen(), of.alternatives().get(0), "greedy takes the likeliest");
      }
      for (float score : scores) assertTrue(score <= 0 && score > -40);
    }
    try (Session session = model.newSession();
         Request request = session.submit(Input.tokens(prompt), Support.greedy(0).logitsAt(0, 2))) {
      assertEquals(List.of(0L, 2L), request.stream().filter(e -> e instanceof Event.Logits)
          .map(e -> ((Event.Logits) e).position()).collect(Collectors.toList()));
    }
  }

  @Test
  void modelsOwnSamplingSettings() throws Exception {
    assertArrayEquals(generate(Support.STORY, Support.greedy(8)).tokens(),
        generate(Support.STORY, model.requestOptions().maxTokens(8)).tokens());
  }

  @Test
  void hostStepsWithinABudget() {
    Generation expected = generate(Support.STORY, Support.greedy(24));
    try (Engine host = Engine.create(Support.cpu().drive(Drive.HOST)); Model own = host.load(Support.pocket());
         Session session = own.newSession(); Request request = session.submit(Support.STORY, Support.greedy(24))) {
      StringBuilder text = new StringBuilder();
      StepInfo first = host.step();
      assertEquals(1, first.numRequests());
      assertTrue(first.prefillTokens() > 0);
      int steps = 1;
      while (!request.isFinished()) {
        StepInfo info = host.step(Duration.ofMillis(2));
        assertTrue(info.numRequests() > 0 || !info.moreWork());
        for (Event event = request.poll(); event != null; event = request.poll()) {
          if (event instanceof Event.Tokens some) text.append(some.text());
        }
        assertTrue(++steps < 1000);
      }
      assertEquals(expected.text(), text.toString());
      // Who waits steps.
      assertEquals(expected.text(), own.newSession().generate(Support.STORY, Support.greedy(24)).text());
      assertEquals(expected.text(), own.newSession().generateAsync(Support.STORY, Support.greedy(24)).join().text());
    }
    assertThrows(InvalidStateException.class, () -> engine.step());
  }

  @Test
  void waitsEndInTime() throws Exception {
    try (Engine host = Engine.create(Support.cpu().drive(Drive.HOST)); Model own = host.load(Support.tiny());
         Session session = own.newSession(); Request request = session.submit(Input.tokens(1, 2, 3), Support.greedy(100_000))) {
      assertNull(request.poll());
      assertNotNull(request.poll(Duration.ofSeconds(30)));
    }
    try (Session session = model.newSession(); Request request = session.submit(Support.STORY, Support.greedy(1))) {
      request.result();
      long start = System.nanoTime();
      assertNull(request.poll(Duration.ofMillis(50)));
      assertTrue(System.nanoTime() - start < Duration.ofSeconds(5).toNanos());
    }
  }

  @Test
  void statisticsAndMetricsCount() {
    Stats before = engine.stats();
    generate(Support.STORY, Support.greedy(4));
    Stats after = engine.stats();
    assertEquals(before.finishedRequests() + 1, after.finishedRequests());
    assertEquals(before.submittedRequests() + 1, after.submittedRequests());
    assertEquals(1, after.numModels());
    assertTrue(after.requestTimeMicros().count() > before.requestTimeMicros().count());
    assertTrue(after.requestTimeMicros().mean() > 0);
    assertTrue(after.kvBytes() > 0 && after.memoryBytes() >= after.kvBytes());
    String metrics = engine.metrics();
    assertTrue(metrics.contains("# TYPE inlay_"), metrics);
    assertTrue(engine.metricsProtobuf().length > 50);
  }

  @Test
  void informationAndTraces() {
    ModelInfo info = model.info();
    assertEquals("LlamaForCausalLM", info.architecture());
    assertEquals(8, info.numLayers());
    assertEquals(4096, info.vocabSize());
    assertTrue(info.hasTokenizer() && info.hasChatTemplate());
    assertEquals(info.hiddenSize(), info.embeddingSize());
    DeviceInfo device = engine.device();
    assertEquals(Backend.CPU, device.backend());
    assertFalse(device.name().isEmpty());
    assertTrue(device.memoryBytes() > 1 << 20);
    assertTrue(engine.measureCopy(1 << 20) > 1e6);
    engine.startTrace(1000);
    generate(Support.STORY, Support.greedy(2));
    assertTrue(engine.takeTrace(true).length > 100);
    assertThrows(InvalidStateException.class, () -> engine.takeTrace(true));
    assertTrue(Inlay.inspect(Support.pocket()).contains("LlamaForCausalLM"));
    assertTrue(Inlay.abiVersion() >= 6);
    assertFalse(Inlay.version().isEmpty());
  }

  @Test
  void quantizedModelLoadsAndAnswers(@TempDir Path folder) {
    Path out = folder.resolve("pocket-\u00e9.gguf");
    List<Float> fractions = new ArrayList<>();
    QuantizeOptions options = new QuantizeOptions("q8_0").threads(1).tensorTypes("*.mlp.*=q4_0").progress((stage, fraction) -> {
      fractions.add(fraction);
      return true;
    });
    String report = Inlay.quantize(Support.pocket(), out, options);
    assertTrue(report.contains("\"type\":\"q8_0\"") && report.contains("q4_0"), report.substring(0, 200));
    assertFalse(fractions.isEmpty());
    assertTrue(Files.exists(out));
    try (Model quantized = engine.load(out)) {
      assertTrue(quantized.newSession().generate("<|user|>What is 2 plus 3?<|end|><|assistant|>", Support.greedy(16)).text()
          .contains("5"));
    }
    assertThrows(CancelledException.class, () -> Inlay.quantize(Support.pocket(), folder.resolve("x.gguf"),
        new QuantizeOptions("q8_0").progress((stage, fraction) -> false)));
    String list = assertThrows(InvalidArgumentException.class, () -> Inlay.quantize(Support.pocket(), folder.resolve("x.gguf"),
        new QuantizeOptions("q99"))).getMessage();
    assertTrue(list.contains("q4_k_m"), list);
    assertThrows(NotFoundException.class, () -> Inlay.quantize(Support.pocket(), folder.resolve("x.gguf"),
        new QuantizeOptions("q8_0").method(QuantizeMethod.IMATRIX).imatrixPath(folder.resolve("none").toString())));
    assertFalse(Files.exists(folder.resolve("x.gguf")));
  }

  @Test
  void recordingsReplay(@TempDir Path folder) {
    Path file = folder.resolve("recording");
    try (Model own = engine.load(Support.pocket())) {
      own.startRecording(file);
      assertThrows(InvalidStateException.class, () -> own.startRecording(file));
      own.newSession().generate(Support.STORY, Support.greedy(8));
      own.stopRecording();
      String report = own.replay(file);
      assertTrue(report.contains("\"same\":true"), report);
    }
  }
}
