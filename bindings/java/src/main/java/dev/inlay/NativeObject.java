package dev.inlay;

import java.lang.ref.Cleaner;
import java.lang.ref.Reference;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;
import java.util.function.LongFunction;

/**
 * Something of the library's that is open until it is closed: by {@link #close}, or when nobody refers to it any more.
 *
 * <p>All methods may be called from any thread. After {@code close()}, and after that of the engine, they throw
 * {@link IllegalStateException}; so does a call that is under way meanwhile.
 */
public abstract class NativeObject implements AutoCloseable {
  private static final Cleaner CLEANER = Cleaner.create();

  private final Handle handle;
  private final Cleaner.Cleanable cleanable;

  /**
   * A handle is a number that the library looks up in each call and never uses twice: a call on one that another thread releases
   * meanwhile ends with an error, and needs no lock here.
   */
  static final class Handle extends AtomicLong implements Runnable {
    private static final long serialVersionUID = 1;
    private final transient LongConsumer release;

    Handle(long number, LongConsumer release) {
      super(number);
      this.release = release;
    }

    @Override
    public void run() {
      long number = getAndSet(0);
      if (number != 0) release.accept(number);
    }
  }

  /** {@code release} must not refer to this object. */
  NativeObject(long number, LongConsumer release) {
    handle = new Handle(number, release);
    cleanable = CLEANER.register(this, handle);
  }

  /** Releases it; no effect the second time. Never blocks, but for an engine. */
  @Override
  public void close() {
    Callbacks.refuseInside();
    cleanable.clean();
  }

  public boolean isClosed() {
    return handle.get() == 0;
  }

  Handle handle() {
    return handle;
  }

  /** Runs {@code function} with the handle, and keeps this object alive until it is back. */
  <T> T call(LongFunction<T> function) {
    Callbacks.refuseInside();
    try {
      long number = handle.get();
      if (number == 0) throw closed(null);
      return function.apply(number);
    } catch (InlayException e) {
      Status status = e.status();
      boolean isStale = status == Status.CLOSED || status == Status.INVALID_HANDLE;
      if (isStale || (status == Status.NOT_FOUND && isClosed())) throw closed(e);
      throw e;
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  private IllegalStateException closed(InlayException cause) {
    String what = getClass().getSimpleName();
    return new IllegalStateException(isClosed() ? what + " is closed" : what + "'s engine is closed", cause);
  }
}
