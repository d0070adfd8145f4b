package dev.inlay;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Devices, threads, a memory budget, and the scheduler that batches the requests of all sessions.
 *
 * <pre>{@code
 * try (Engine engine = Engine.create();
 *      Model model = engine.load("models/pocket-7m");
 *      Session session = model.newSession()) {
 *   for (Iterator<String> it = session.submit("Once upon a time,").text().iterator(); it.hasNext(); ) {
 *     System.out.print(it.next());
 *   }
 * }
 * }</pre>
 *
 * <p>Closing it cancels everything, ends its thread after the step it is in, and frees all memory of its models; engines still open
 * when the virtual machine ends are closed then.
 */
public final class Engine extends NativeObject {
  /** A step must not meet the library's end. */
  static final Set<Handle> OPEN = ConcurrentHashMap.newKeySet();

  static {
    NativeLoader.load();
    try {
      Runtime.getRuntime().addShutdownHook(new Thread(() -> OPEN.forEach(Handle::run), "inlay-shutdown"));
    } catch (IllegalStateException e) {
      // The end has begun.
    }
  }

  private final Drive drive;
  /** Held by the one waiter that steps a host-driven engine. */
  private final ReentrantLock stepping = new ReentrantLock();

  private Engine(long number, Drive drive, long log) {
    super(number, n -> {
      InlayC.inlay_engine_release(n);
      Callbacks.removeLog(log);
      OPEN.removeIf(handle -> handle.get() == 0);
    });
    this.drive = drive;
    OPEN.add(handle());
  }

  /** With the defaults: whatever device there is, driven by a thread of its own. */
  public static Engine create() {
    return create(new EngineOptions());
  }

  /**
   * @throws InvalidArgumentException naming the option
   * @throws UnsupportedException saying what the backend asked for is missing
   */
  public static Engine create(EngineOptions options) {
    Callbacks.refuseInside();
    long log = options.listener() == null ? 0 : Callbacks.addLog(options.listener());
    InlayEngineOptions made = options.make(log);
    long[] engine = new long[1];
    try {
      InlayC.inlay_engine_create(made, engine);
      return new Engine(engine[0], options.drive(), log);
    } finally {
      if (engine[0] == 0) Callbacks.removeLog(log);
      made.delete();
    }
  }

  /** Loads with the defaults: {@link #load(String, ModelOptions)}. */
  public Model load(String path) {
    return load(path, new ModelOptions());
  }

  public Model load(Path path) {
    return load(path.toString(), new ModelOptions());
  }

  public Model load(Path path, ModelOptions options) {
    return load(path.toString(), options);
  }

  /**
   * Blocks until loaded; other threads go on meanwhile.
   *
   * @param path a Hugging Face folder, a GGUF file, or {@code "random:CONFIG_DIR"} for random weights of that shape
   * @throws NotFoundException no such file
   * @throws InvalidArgumentException damaged or contradictory files; the message names file and field
   * @throws UnsupportedException an architecture or format that this build does not know
   * @throws ResourceExhaustedException it does not fit the memory budget
   * @throws CancelledException the progress listener returned {@code false}
   */
  public Model load(String path, ModelOptions options) {
    byte[] name = Text.terminated(path, "path");
    return call(engine -> {
      try (Callbacks.Progress progress = new Callbacks.Progress(options.listener())) {
        InlayModelOptions made = options.make(progress.number);
        long[] model = new long[1];
        try {
          InlayC.inlay_model_load(engine, name, made, model);
        } catch (CancelledException e) {
          progress.rethrow();
          throw e;
        } finally {
          made.delete();
        }
        return new Model(this, model[0]);
      }
    });
  }

  public Drive drive() {
    return drive;
  }

  /** Host-driven engines: exactly one step. See {@link #step(Duration)}. */
  public StepInfo step() {
    return stepMicros(0);
  }

  /**
   * Host-driven engines: runs steps until {@code budget} is used up or there is nothing to do. Batches are sized by what steps have
   * taken so far, so that the call ends in time; something is computed however small the budget is.
   *
   * @param budget to microseconds; zero is one microsecond
   * @throws InvalidStateException the engine is driven by its thread, or another thread is stepping
   */
  public StepInfo step(Duration budget) {
    return stepMicros(Math.max(1, Check.micros(budget, "budget")));
  }

  private StepInfo stepMicros(long budgetMicros) {
    return call(engine -> {
      InlayStepInfo info = new InlayStepInfo();
      try {
        InlayC.inlay_engine_step(engine, budgetMicros, info);
        return new StepInfo(info);
      } finally {
        info.delete();
      }
    });
  }

  /** One step by a thread that waits; {@code false} when there was nothing to do, or another one is stepping. */
  boolean stepForWaiter() {
    if (!stepping.tryLock()) return false;
    try {
      return step().numRequests() > 0;
    } catch (InvalidStateException e) {
      return false;
    } finally {
      stepping.unlock();
    }
  }

  /**
   * The most memory that weights, KV cache and scratch may take together from now on, up or down. Obeyed at once, or at the end of
   * the step under way: caches shrink, running requests may have to wait, none is lost.
   *
   * @param bytes 0: no limit
   * @throws ResourceExhaustedException below what weights and scratch take; nothing is changed
   */
  public void setMemoryBudget(long bytes) {
    Check.notNegative(bytes, "bytes");
    call(engine -> InlayC.inlay_engine_set_memory_budget(engine, 0, bytes));
  }

  public Stats stats() {
    return call(engine -> {
      InlayStats stats = new InlayStats();
      try {
        InlayC.inlay_engine_stats(engine, stats);
        return new Stats(stats);
      } finally {
        stats.delete();
      }
    });
  }

  /** All there is to count, in Prometheus' text exposition format 0.0.4. */
  public String metrics() {
    return Text.string(metrics(0));
  }

  /** The same as a serialised {@code inlay.stats.EngineStats} of {@code api/proto/stats.proto}. */
  public byte[] metricsProtobuf() {
    return metrics(1);
  }

  private byte[] metrics(int format) {
    byte[][] metrics = new byte[1][];
    call(engine -> InlayC.inlay_engine_metrics(engine, format, metrics));
    return metrics[0];
  }

  public DeviceInfo device() {
    return call(engine -> {
      InlayDeviceInfo info = new InlayDeviceInfo();
      try {
        InlayC.inlay_engine_device(engine, info);
        return new DeviceInfo(info);
      } finally {
        info.delete();
      }
    });
  }

  /**
   * Times copies within the device's memory for about 20 ms: bytes read plus bytes written a second.
   *
   * @param bytes 1 MiB to 4 GiB
   */
  public double measureCopy(long bytes) {
    Check.notNegative(bytes, "bytes");
    double[] rate = new double[1];
    call(engine -> InlayC.inlay_engine_measure_copy(engine, bytes, rate));
    return rate[0];
  }

  /**
   * Records what steps, requests and KV blocks do, in a ring of the newest events (about 100 bytes each; 1 to 1048576).
   *
   * @throws InvalidStateException it records already
   */
  public void startTrace(int numEvents) {
    Check.notNegative(numEvents, "numEvents");
    call(engine -> InlayC.inlay_engine_trace_start(engine, numEvents));
  }

  /**
   * What was recorded since, for ui.perfetto.dev.
   *
   * @param stop ends recording
   * @throws InvalidStateException nothing is recorded
   */
  public byte[] takeTrace(boolean stop) {
    byte[][] trace = new byte[1][];
    call(engine -> InlayC.inlay_engine_trace_take(engine, stop ? 1 : 0, trace));
    return trace[0];
  }
}
