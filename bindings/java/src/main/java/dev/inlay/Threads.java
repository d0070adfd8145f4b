package dev.inlay;

import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;

/** Threads that wait for events in place of the caller's. They do not keep the virtual machine alive. */
final class Threads {
  private static final AtomicInteger COUNT = new AtomicInteger();
  private static final Executor EXECUTOR = Executors.newCachedThreadPool(work -> {
    Thread thread = new Thread(null, work, "inlay-async-" + COUNT.incrementAndGet());
    thread.setDaemon(true);
    return thread;
  });

  private Threads() {}

  static Executor executor() {
    return EXECUTOR;
  }
}
