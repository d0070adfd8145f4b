package dev.inlay;

import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** A request's events by the rules of Reactive Streams, to one subscriber. */
final class EventPublisher implements Flow.Publisher<Event> {
  private final Request request;
  private final Executor executor;
  private final AtomicBoolean taken = new AtomicBoolean();

  EventPublisher(Request request, Executor executor) {
    this.request = request;
    this.executor = executor;
  }

  @Override
  public void subscribe(Flow.Subscriber<? super Event> subscriber) {
    if (taken.compareAndSet(false, true)) {
      new Subscription(subscriber).start();
      return;
    }
    subscriber.onSubscribe(new Flow.Subscription() {
      @Override
      public void request(long count) {}

      @Override
      public void cancel() {}
    });
    subscriber.onError(new IllegalStateException("a request's events go to one subscriber"));
  }

  private final class Subscription implements Flow.Subscription {
    private final Flow.Subscriber<? super Event> subscriber;
    private final AtomicLong demand = new AtomicLong();
    /** Calls for work that came while some was under way: signals are never sent by two threads at once. */
    private final AtomicLong pending = new AtomicLong();
    private volatile boolean ended;
    private volatile Throwable wrong;

    Subscription(Flow.Subscriber<? super Event> subscriber) {
      this.subscriber = subscriber;
    }

    /** What is requested within onSubscribe is served after it. */
    void start() {
      pending.set(1);
      subscriber.onSubscribe(this);
      if (pending.decrementAndGet() > 0) execute();
    }

    @Override
    public void request(long count) {
      if (count <= 0) {
        wrong = new IllegalArgumentException("requested " + count + " events, allowed: 1 and more");
      } else {
        demand.accumulateAndGet(count, (a, b) -> a + b < 0 ? Long.MAX_VALUE : a + b);
      }
      if (pending.getAndIncrement() == 0) execute();
    }

    @Override
    public void cancel() {
      ended = true;
      request.close();
    }

    private void execute() {
      try {
        executor.execute(this::run);
      } catch (RejectedExecutionException e) {
        fail(e);
      }
    }

    private void run() {
      long seen = pending.get();
      do {
        try {
          serve();
        } catch (Throwable e) {
          fail(e);
        }
        seen = pending.addAndGet(-seen);
      } while (seen > 0);
    }

    private void serve() {
      while (!ended) {
        if (wrong != null) throw (RuntimeException) wrong;
        if (demand.get() == 0) return;
        Event event = request.awaitUnchecked();
        if (ended) return;
        if (event instanceof Event.Finished end) Request.throwErrorOf(end);
        if (demand.get() != Long.MAX_VALUE) demand.decrementAndGet();
        if (event != null) subscriber.onNext(event);
        if (event == null || event instanceof Event.Finished) {
          end();
          subscriber.onComplete();
        }
      }
    }

    private void fail(Throwable error) {
      if (ended) return;
      end();
      subscriber.onError(error);
    }

    private void end() {
      ended = true;
      request.close();
    }
  }
}
