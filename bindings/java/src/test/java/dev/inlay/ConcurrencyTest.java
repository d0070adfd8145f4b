package dev.inlay;

import static org.junit.jupiter.api.Assertions.*;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Many at once, and things that end while others use them. */
@Timeout(600)
class ConcurrencyTest {
  private final ExecutorService threads = Executors.newCachedThreadPool();
  private Engine engine;
  private Model model;

  @BeforeEach
  void load() {
    engine = Support.engine();
    model = engine.load(Support.pocket());
  }

  @AfterEach
  void close() throws Exception {
    engine.close();
    threads.shutdownNow();
    assertTrue(threads.awaitTermination(60, TimeUnit.SECONDS));
  }

  private static String prompt(int i) {
    return "Once upon a time, number " + i;
  }

  @Test
  void sixtyFourSessionsGiveWhatEachGivesAlone() throws Exception {
    List<String> alone = new ArrayList<>();
    for (int i = 0; i < 64; ++i) {
      try (Session session = model.newSession()) {
        alone.add(session.generate(prompt(i), Support.greedy(16)).text());
      }
    }
    List<Future<String>> together = new ArrayList<>();
    for (int i = 0; i < 64; ++i) {
      int number = i;
      together.add(threads.submit(() -> {
        try (Session session = model.newSession();
             var pieces = session.submit(prompt(number), Support.greedy(16)).text()) {
          StringBuilder text = new StringBuilder();
          pieces.forEach(text::append);
          return text.toString();
        }
      }));
    }
    for (int i = 0; i < 64; ++i) assertEquals(alone.get(i), together.get(i).get(), prompt(i));
    List<CompletableFuture<Generation>> futures = new ArrayList<>();
    for (int i = 0; i < 64; ++i) futures.add(model.newSession().generateAsync(prompt(i), Support.greedy(16)));
    for (int i = 0; i < 64; ++i) assertEquals(alone.get(i), futures.get(i).get().text());
    assertEquals(192, engine.stats().finishedRequests());
  }

  @Test
  void cancelEndsWithinAStep() throws Exception {
    try (Engine host = Engine.create(Support.cpu().drive(Drive.HOST)); Model own = host.load(Support.pocket());
         Session session = own.newSession(); Request request = session.submit(Support.STORY, Support.greedy(500))) {
      host.step();
      host.step();
      request.cancel();
      StepInfo step = host.step();
      assertEquals(0, step.sampledTokens());
      Event last = null;
      for (Event event = request.poll(); event != null; event = request.poll()) last = event;
      Event.Finished end = (Event.Finished) last;
      assertEquals(FinishReason.CANCELLED, end.reason());
      assertTrue(end.error().isEmpty());
      assertTrue(end.generatedTokens() <= 2);
      request.cancel();
      assertFalse(session.info().busy());
    }
  }

  @Test
  void cancelStorms() throws Exception {
    Random random = new Random(17);
    List<Future<?>> all = new ArrayList<>();
    for (int t = 0; t < 16; ++t) {
      long seed = random.nextLong();
      all.add(threads.submit(() -> {
        Random own = new Random(seed);
        for (int i = 0; i < 10; ++i) {
          try (Session session = model.newSession()) {
            Request request = session.submit(prompt(i), Support.greedy(400));
            Future<?> canceller = threads.submit(() -> {
              request.cancel();
              request.cancel();
            });
            switch (own.nextInt(4)) {
              case 0 -> request.result();
              case 1 -> request.take();
              case 2 -> session.close();
              default -> request.close();
            }
            try {
              canceller.get();
            } catch (java.util.concurrent.ExecutionException e) {
              // It came after close.
              assertInstanceOf(IllegalStateException.class, e.getCause());
            }
            request.close();
          }
        }
        return null;
      }));
    }
    for (Future<?> one : all) one.get();
    Support.await("all are gone", () -> engine.stats().runningRequests() == 0 && engine.stats().waitingRequests() == 0);
    Stats stats = engine.stats();
    assertEquals(160, stats.submittedRequests());
    assertEquals(160, stats.cancelledRequests() + stats.finishedRequests());
    assertEquals(0, stats.failedRequests());
    // The engine is as good as before.
    assertEquals(FinishReason.LENGTH, model.newSession().generate(Support.STORY, Support.greedy(4)).reason());
  }

  @Test
  void memoryLeaseShrinksAndGrowsUnderWork() throws Exception {
    List<String> expected = new ArrayList<>();
    for (int i = 0; i < 12; ++i) expected.add(model.newSession().generate(prompt(i), Support.greedy(60)).text());
    AtomicBoolean done = new AtomicBoolean();
    Stats full = engine.stats();
    long least = full.memoryBytes() - full.kvBytes() + (8 << 20);
    Future<Integer> lease = threads.submit(() -> {
      int changes = 0;
      for (boolean small = true; !done.get(); small = !small, ++changes) {
        engine.setMemoryBudget(small ? least : 0);
        if (small) assertTrue(engine.stats().memoryBudgetBytes() == least);
        Thread.sleep(20);
      }
      engine.setMemoryBudget(0);
      return changes;
    });
    List<CompletableFuture<Generation>> futures = new ArrayList<>();
    for (int i = 0; i < 12; ++i) futures.add(model.newSession().generateAsync(prompt(i), Support.greedy(60)));
    for (int i = 0; i < 12; ++i) assertEquals(expected.get(i), futures.get(i).get().text());
    done.set(true);
    assertTrue(lease.get() > 2);
    engine.setMemoryBudget(least);
    Support.await("within the lease", () -> engine.stats().memoryBytes() <= least);
    assertThrows(ResourceExhaustedException.class, () -> engine.setMemoryBudget(1));
    engine.setMemoryBudget(0);
    assertEquals(expected.get(0), model.newSession().generate(prompt(0), Support.greedy(60)).text());
  }

  @Test
  void closingTheEngineUnderRunningRequests() throws Exception {
    CountDownLatch running = new CountDownLatch(8);
    List<Future<Throwable>> waiters = new ArrayList<>();
    for (int t = 0; t < 8; ++t) {
      Callable<Throwable> wait = () -> {
        Session session = model.newSession();
        Request request = session.submit(Support.STORY, Support.greedy(1500));
        request.take();
        running.countDown();
        try {
          assertEquals(FinishReason.CANCELLED, request.result().reason());
          return null;
        } catch (IllegalStateException e) {
          return e;
        }
      };
      waiters.add(threads.submit(wait));
    }
    running.await();
    engine.close();
    engine.close();
    for (Future<Throwable> waiter : waiters) waiter.get();
    assertThrows(IllegalStateException.class, () -> model.newSession());
    assertThrows(IllegalStateException.class, () -> engine.stats());
    model.close();
  }

  @Test
  void callsRaceWithClose() throws Exception {
    for (int round = 0; round < 20; ++round) {
      Engine own = Support.engine();
      Model tiny = own.load(Support.tiny());
      Session session = tiny.newSession();
      Request request = session.submit(Input.tokens(1, 2, 3), Support.greedy(100_000).ignoreEos(true));
      CountDownLatch begun = new CountDownLatch(4);
      List<Future<?>> users = new ArrayList<>();
      Callable<Object> poll = () -> {
        request.poll(Duration.ofMillis(1));
        if (request.isFinished()) throw new IllegalStateException("its session was closed first");
        return null;
      };
      List<Callable<Object>> calls = List.of(own::stats, poll, session::info, () -> tiny.newSession().tokens());
      for (Callable<Object> call : calls) {
        users.add(threads.submit(() -> {
          for (int i = 0; ; ++i) {
            try {
              call.call();
            } catch (IllegalStateException e) {
              return null;
            } finally {
              if (i == 0) begun.countDown();
            }
          }
        }));
      }
      begun.await();
      Thread.sleep(round % 3);
      List<AutoCloseable> closed = List.of(request, session, tiny, own);
      for (int i = 0; i < closed.size(); ++i) closed.get((i + round) % closed.size()).close();
      for (Future<?> user : users) user.get();
    }
  }

  @Test
  void interruptsReachAWaitingThread() throws Exception {
    try (Engine narrow = Engine.create(Support.cpu().maxRunning(1)); Model own = narrow.load(Support.pocket());
         Session busy = own.newSession(); Request first = busy.submit(Support.STORY, Support.greedy(1500).ignoreEos(true));
         Session session = own.newSession(); Request queued = session.submit(Support.STORY, Support.greedy(4))) {
      for (Callable<?> wait : List.<Callable<?>>of(() -> queued.poll(Duration.ofMinutes(5)), queued::take, queued::result)) {
        FutureTask<Exception> task = new FutureTask<>(() -> assertThrows(Exception.class, wait::call));
        Thread waiter = new Thread(task);
        waiter.start();
        Thread.sleep(20);
        waiter.interrupt();
        Exception thrown = task.get(10, TimeUnit.SECONDS);
        assertTrue(thrown instanceof InterruptedException || thrown instanceof CancelledException, thrown.toString());
      }
      assertFalse(first.isFinished());
      Thread.currentThread().interrupt();
      assertThrows(CancelledException.class, queued::result);
      assertTrue(Thread.interrupted(), "the interrupt stays set");
      first.cancel();
      assertEquals(FinishReason.LENGTH, queued.result().reason());
    }
  }
}
