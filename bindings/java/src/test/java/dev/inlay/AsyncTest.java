package dev.inlay;

import static org.junit.jupiter.api.Assertions.*;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Futures and publishers. */
@Timeout(600)
class AsyncTest {
  private static Engine engine;
  private static Model model;

  @BeforeAll
  static void load() {
    engine = Support.engine();
    model = engine.load(Support.pocket());
  }

  @AfterAll
  static void close() {
    engine.close();
  }

  /** What one test cancelled the engine may count only in its next step: no test begins before that. */
  @AfterEach
  void settle() throws InterruptedException {
    Support.await("nothing runs", () -> {
      Stats stats = engine.stats();
      return stats.runningRequests() == 0 && stats.waitingRequests() == 0;
    });
  }

  /** Asks for {@code batch} events at a time. */
  private static class Collector implements Flow.Subscriber<Event> {
    final List<Event> events = new ArrayList<>();
    final CountDownLatch ended = new CountDownLatch(1);
    final long batch;
    Flow.Subscription subscription;
    Throwable error;
    boolean completed;
    long left;

    Collector(long batch) {
      this.batch = batch;
    }

    @Override
    public void onSubscribe(Flow.Subscription subscription) {
      this.subscription = subscription;
      ask();
    }

    void ask() {
      left = batch;
      if (batch != 0) subscription.request(batch);
    }

    @Override
    public void onNext(Event event) {
      assertTrue(left-- > 0, "more than was asked for");
      events.add(event);
      if (left == 0) ask();
    }

    @Override
    public void onError(Throwable error) {
      this.error = error;
      ended.countDown();
    }

    @Override
    public void onComplete() {
      completed = true;
      ended.countDown();
    }

    String text() {
      StringBuilder text = new StringBuilder();
      for (Event event : events) if (event instanceof Event.Tokens some) text.append(some.text());
      return text.toString();
    }
  }

  @Test
  void publisherObeysDemand() throws Exception {
    String whole = model.newSession().generate(Support.STORY, Support.greedy(40)).text();
    for (long batch : new long[] {1, 3, Long.MAX_VALUE}) {
      Collector collector = new Collector(batch);
      Request request = model.newSession().submit(Support.STORY, Support.greedy(40));
      request.publisher().subscribe(collector);
      assertTrue(collector.ended.await(60, TimeUnit.SECONDS));
      assertTrue(collector.completed);
      assertNull(collector.error);
      assertEquals(whole, collector.text());
      assertInstanceOf(Event.Finished.class, collector.events.get(collector.events.size() - 1));
      assertTrue(request.isClosed());
    }
  }

  @Test
  void publisherWithoutDemandWaits() throws Exception {
    Collector collector = new Collector(0);
    Request request = model.newSession().submit(Support.STORY, Support.greedy(8));
    Flow.Publisher<Event> publisher = request.publisher();
    publisher.subscribe(collector);
    Thread.sleep(100);
    assertTrue(collector.events.isEmpty() && collector.ended.getCount() == 1);
    collector.left = Long.MAX_VALUE;
    collector.subscription.request(Long.MAX_VALUE);
    assertTrue(collector.ended.await(60, TimeUnit.SECONDS));
    assertFalse(collector.text().isEmpty());

    Collector second = new Collector(1);
    publisher.subscribe(second);
    assertInstanceOf(IllegalStateException.class, second.error);
  }

  @Test
  void publisherCancelsAndReportsMisuse() throws Exception {
    long before = engine.stats().cancelledRequests();
    Collector cancelled = new Collector(1) {
      @Override
      public void onNext(Event event) {
        events.add(event);
        subscription.cancel();
      }
    };
    model.newSession().submit(Support.STORY, Support.greedy(1500)).publisher().subscribe(cancelled);
    Support.await("cancelled", () -> engine.stats().cancelledRequests() == before + 1);
    assertEquals(1, cancelled.events.size());
    assertEquals(1, cancelled.ended.getCount());

    Collector negative = new Collector(-1);
    model.newSession().submit(Support.STORY, Support.greedy(4)).publisher().subscribe(negative);
    assertTrue(negative.ended.await(60, TimeUnit.SECONDS));
    assertInstanceOf(IllegalArgumentException.class, negative.error);

    Collector throwing = new Collector(1) {
      @Override
      public void onNext(Event event) {
        throw new IllegalStateException("mine");
      }
    };
    model.newSession().submit(Support.STORY, Support.greedy(1500)).publisher().subscribe(throwing);
    assertTrue(throwing.ended.await(60, TimeUnit.SECONDS));
    assertEquals("mine", throwing.error.getMessage());

    Collector rejected = new Collector(1);
    model.newSession().submit(Support.STORY, Support.greedy(4)).publisher(work -> {
      throw new RejectedExecutionException("full");
    }).subscribe(rejected);
    assertInstanceOf(RejectedExecutionException.class, rejected.error);
  }

  @Test
  void failuresReachFuturesAndSubscribers() throws Exception {
    RequestOptions late = Support.greedy(1500).ignoreEos(true).deadline(Duration.ofMillis(30));
    ExecutionException e = assertThrows(ExecutionException.class,
        () -> model.newSession().generateAsync(Support.STORY, late).get());
    assertInstanceOf(DeadlineExceededException.class, e.getCause());
    Collector collector = new Collector(Long.MAX_VALUE);
    model.newSession().submit(Support.STORY, late).publisher().subscribe(collector);
    assertTrue(collector.ended.await(60, TimeUnit.SECONDS));
    assertInstanceOf(DeadlineExceededException.class, collector.error);
    assertThrows(DeadlineExceededException.class, () -> model.newSession().submit(Support.STORY, late).text().toList());

    CompletableFuture<Generation> refused = model.newSession().generateAsync(Support.STORY, new RequestOptions().topP(7));
    assertInstanceOf(InvalidArgumentException.class, assertThrows(ExecutionException.class, refused::get).getCause());
  }

  @Test
  void cancelledAndTimedOutFuturesCancelTheirRequests() throws Exception {
    long before = engine.stats().cancelledRequests();
    CompletableFuture<Generation> future = model.newSession().generateAsync(Support.STORY, Support.greedy(1500).ignoreEos(true));
    assertTrue(future.cancel(true));
    assertThrows(CancellationException.class, future::get);
    CompletableFuture<Generation> timed = model.newSession().generateAsync(Support.STORY, Support.greedy(1500).ignoreEos(true))
        .orTimeout(20, TimeUnit.MILLISECONDS);
    assertInstanceOf(TimeoutException.class, assertThrows(ExecutionException.class, timed::get).getCause());
    Support.await("both cancelled", () -> engine.stats().cancelledRequests() == before + 2);
  }
}
