package dev.inlay;

import java.time.Duration;
import java.util.Objects;

/** How an engine is made. What is not set has the library's default. Not thread-safe; may be used again after the call. */
public final class EngineOptions {
  private final OptionList<InlayEngineOptions> settings = new OptionList<>();
  private Drive drive = Drive.THREAD;
  private LogListener listener;

  public EngineOptions() {}

  /** Default {@link Backend#AUTO}. */
  public EngineOptions backend(Backend backend) {
    settings.add(o -> o.setBackend(backend.ordinal()));
    return this;
  }

  /** Default {@link Drive#THREAD}. */
  public EngineOptions drive(Drive drive) {
    this.drive = Objects.requireNonNull(drive);
    return this;
  }

  /** Of the CPU's kernels, the stepping one included; 0 (default): one per core; at most 1024. */
  public EngineOptions threads(int threads) {
    settings.add(o -> o.setNum_threads(threads));
    return this;
  }

  /** For weights, KV cache and scratch together; 0 (default): no limit. {@link Engine#setMemoryBudget} changes it. */
  public EngineOptions memoryBudget(long bytes) {
    Check.notNegative(bytes, "memoryBudget");
    settings.add(o -> o.setMemory_budget_bytes(bytes));
    return this;
  }

  /** Computed in one step; default 512, at most 65536. */
  public EngineOptions maxBatchTokens(int tokens) {
    Check.notNegative(tokens, "maxBatchTokens");
    settings.add(o -> o.setMax_batch_tokens(tokens));
    return this;
  }

  /** Requests that take part in steps; default 256, at most 4096. */
  public EngineOptions maxRunning(int requests) {
    Check.notNegative(requests, "maxRunning");
    settings.add(o -> o.setMax_running(requests));
    return this;
  }

  /** Requests that wait for that; default 65536. */
  public EngineOptions maxQueue(int requests) {
    Check.notNegative(requests, "maxQueue");
    settings.add(o -> o.setMax_queue(requests));
    return this;
  }

  /** Messages up to {@code level}; default: no log. A listener that refers to the engine keeps it from being collected. */
  public EngineOptions log(LogLevel level, LogListener listener) {
    this.listener = Objects.requireNonNull(listener);
    settings.add(o -> o.setLog_level(level.ordinal()));
    return this;
  }

  /** {@code false}: only a session and its forks share KV, so that none can tell by timing what another has asked. */
  public EngineOptions prefixSharing(boolean on) {
    settings.add(o -> o.setPrefix_sharing(on ? 1 : 0));
    return this;
  }

  /** Prompt tokens of one request in a step; 0 (default): all that the batch holds. */
  public EngineOptions maxPrefillChunk(int tokens) {
    Check.notNegative(tokens, "maxPrefillChunk");
    settings.add(o -> o.setMax_prefill_chunk(tokens));
    return this;
  }

  /** Prompts join the steps of running generations only as far as those stay within it; zero (default): no target. */
  public EngineOptions tpotTarget(Duration target) {
    long micros = Check.micros(target, "tpotTarget");
    settings.add(o -> o.setTpot_target_us(micros));
    return this;
  }

  /** Who waited this long goes first; default 10 s; zero: never. */
  public EngineOptions starvation(Duration bound) {
    long micros = Check.micros(bound, "starvation");
    settings.add(o -> o.setStarvation_us(micros));
    return this;
  }

  /** CUDA's number of the GPU; default 0. */
  public EngineOptions gpu(int number) {
    Check.notNegative(number, "gpu");
    settings.add(o -> o.setGpu(number));
    return this;
  }

  /** On CUDA too, as on CPU always, a request gets the same tokens whatever else runs; default off. */
  public EngineOptions batchInvariant(boolean on) {
    settings.add(o -> o.setBatch_invariant(on ? 1 : 0));
    return this;
  }

  Drive drive() {
    return drive;
  }

  LogListener listener() {
    return listener;
  }

  /** To be deleted. */
  InlayEngineOptions make(long log) {
    InlayEngineOptions made = new InlayEngineOptions();
    made.setDrive(drive.ordinal());
    settings.applyTo(made);
    if (log != 0) made.logTo(log);
    return made;
  }
}
