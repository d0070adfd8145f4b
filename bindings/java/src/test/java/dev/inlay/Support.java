package dev.inlay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.fail;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BooleanSupplier;

/** What the tests share. Paths come from CMakeLists.txt or pom.xml. */
final class Support {
  static final String STORY = "Once upon a time,";

  private Support() {}

  /** Trained, with tokenizer and chat template. */
  static String pocket() {
    return Path.of(property("inlay.test.source"), "examples/models/pocket-7m").toString();
  }

  /** Trained, of 1 million parameters. */
  static String small() {
    return Path.of(property("inlay.test.source"), "tests/data/models/pocket-1m").toString();
  }

  /** 2 layers, 512 random tokens, no tokenizer: a step takes microseconds. */
  static String tiny() {
    return Path.of(property("inlay.test.source"), "tests/data/models/llama3").toString();
  }

  static String property(String name) {
    String value = System.getProperty(name);
    if (value == null) throw new IllegalStateException("the property " + name + " is not set");
    return value;
  }

  static EngineOptions cpu() {
    return new EngineOptions().backend(Backend.CPU).threads(2);
  }

  static Engine engine() {
    return Engine.create(cpu());
  }

  static RequestOptions greedy(int maxTokens) {
    return new RequestOptions().maxTokens(maxTokens);
  }

  static void await(String what, BooleanSupplier condition) throws InterruptedException {
    long end = System.nanoTime() + Duration.ofMinutes(4).toNanos();
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() > end) fail("not within minutes: " + what);
      Thread.sleep(5);
    }
  }

  /** The lines that src/test/c/reference.c prints. */
  static List<String> reference(String... arguments) throws IOException, InterruptedException {
    List<String> command = new ArrayList<>(List.of(property("inlay.test.reference")));
    command.addAll(List.of(arguments));
    Result result = run(command);
    assertEquals(0, result.exit(), result.output());
    return result.output().lines().toList();
  }

  record Result(int exit, String output) {}

  static Result run(List<String> command) throws IOException, InterruptedException {
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    return new Result(process.waitFor(), output);
  }

  /** A virtual machine of its own with the same class path. */
  static Result java(List<String> options, Class<?> main, String... arguments) throws IOException, InterruptedException {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin/java").toString());
    command.addAll(options);
    command.addAll(List.of("-Dinlay.test.source=" + property("inlay.test.source"), "-cp", System.getProperty("java.class.path")));
    command.add(main.getName());
    command.addAll(List.of(arguments));
    return run(command);
  }

  static long residentKib() throws IOException {
    for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
      if (line.startsWith("VmRSS:")) return Long.parseLong(line.replaceAll("\\D", ""));
    }
    throw new IOException("no VmRSS");
  }
}
