package dev.inlay;

import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Where callbacks from the library arrive. A listener is known to it by a number that is never used twice, so that a late call
 * finds none, never a wrong one. Nothing that a listener throws gets into the library.
 */
final class Callbacks {
  private static final ConcurrentHashMap<Long, LogListener> LOGS = new ConcurrentHashMap<>();
  private static final ConcurrentHashMap<Long, Progress> PROGRESS = new ConcurrentHashMap<>();
  private static final AtomicLong NUMBERS = new AtomicLong();
  private static final ThreadLocal<Boolean> INSIDE = ThreadLocal.withInitial(() -> false);

  private Callbacks() {}

  /** A listener during one call, and what it threw. */
  static final class Progress implements AutoCloseable {
    final long number = NUMBERS.incrementAndGet();
    private final ProgressListener listener;
    private Throwable thrown;

    Progress(ProgressListener listener) {
      this.listener = listener;
      PROGRESS.put(number, this);
    }

    /** Throws what the listener threw: it cancelled the call. */
    void rethrow() {
      if (thrown instanceof Error error) throw error;
      if (thrown instanceof RuntimeException exception) throw exception;
    }

    @Override
    public void close() {
      PROGRESS.remove(number);
    }
  }

  static long addLog(LogListener listener) {
    long number = NUMBERS.incrementAndGet();
    LOGS.put(number, listener);
    return number;
  }

  static void removeLog(long number) {
    LOGS.remove(number);
  }

  /** The library would wait for itself. */
  static void refuseInside() {
    if (INSIDE.get()) throw new IllegalStateException("a listener must not call Inlay");
  }

  /** Called by the library, on any thread. */
  static void log(long number, int level, byte[] message) {
    LogListener listener = LOGS.get(number);
    if (listener == null) return;
    INSIDE.set(true);
    try {
      LogLevel[] levels = LogLevel.values();
      listener.log(levels[Math.max(0, Math.min(level, levels.length - 1))], Text.string(message));
    } catch (Throwable ignored) {
      // There is nobody to tell: the thread is the library's, or a caller's who asked for something else.
    } finally {
      INSIDE.set(false);
    }
  }

  /** Called by the library, on the thread that loads. Other than 0 cancels. */
  static int progress(long number, int stage, float fraction) {
    Progress progress = PROGRESS.get(number);
    if (progress == null) return 0;
    INSIDE.set(true);
    try {
      LoadStage[] stages = LoadStage.values();
      return progress.listener.progress(stages[Math.min(stage, stages.length - 1)], fraction) ? 0 : 1;
    } catch (Throwable e) {
      progress.thrown = e;
      return 1;
    } finally {
      INSIDE.set(false);
    }
  }
}
