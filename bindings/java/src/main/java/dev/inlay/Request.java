package dev.inlay;

import java.time.Duration;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * One generation in a session. Its events are pulled, each is handed out once: by {@link #poll}, {@link #take}, by iterating, as a
 * stream of text, as one result, or on other threads by {@link #resultAsync} and {@link #publisher}. A slow reader finds several
 * tokens in one event.
 *
 * <p>Whoever waits on a host-driven engine steps it meanwhile, unless another thread does.
 *
 * <p>Closing it cancels it, and so does losing it: keep a reference while it runs.
 */
public final class Request extends NativeObject implements Iterable<Event> {
  /** How long a wait stays in the library, where an interrupt does not reach it. */
  private static final long SLICE_MICROS = 50_000;
  /** The same while another thread steps. */
  private static final long STEPPED_SLICE_MICROS = 2_000;

  private final Session session;
  private volatile boolean finished;

  Request(Session session, long number) {
    super(number, InlayC::inlay_request_release);
    this.session = session;
  }

  public Session session() {
    return session;
  }

  /** Whether the last event was taken. */
  public boolean isFinished() {
    return finished;
  }

  /** Ends it within a step; a last event with {@link FinishReason#CANCELLED} follows. No effect once finished. */
  public void cancel() {
    call(InlayC::inlay_request_cancel);
  }

  // ---- Pulling

  /** The next event that is there, without waiting or stepping; null: none, or the last one was taken. */
  public Event poll() {
    return next(0);
  }

  /** The next event; null: none came in time, or the last one was taken. */
  public Event poll(Duration timeout) throws InterruptedException {
    long micros = Check.micros(timeout, "timeout");
    return await(micros > Long.MAX_VALUE / 2000 ? Long.MAX_VALUE : micros * 1000);
  }

  /** The next event, however long it takes. @throws NoSuchElementException the last one was taken */
  public Event take() throws InterruptedException {
    Event event = await(Long.MAX_VALUE);
    if (event == null) throw new NoSuchElementException("the request's last event was taken");
    return event;
  }

  /**
   * Events up to the last one. An interrupt while waiting throws {@link CancelledException} and stays set; the request goes on.
   */
  @Override
  public Iterator<Event> iterator() {
    return new Iterator<>() {
      private Event next;

      @Override
      public boolean hasNext() {
        if (next == null) next = awaitUnchecked();
        return next != null;
      }

      @Override
      public Event next() {
        if (!hasNext()) throw new NoSuchElementException();
        Event event = next;
        next = null;
        return event;
      }
    };
  }

  /** Events as {@link #iterator()} has them. Closing the stream closes the request. */
  public Stream<Event> stream() {
    int traits = Spliterator.ORDERED | Spliterator.NONNULL;
    return StreamSupport.stream(Spliterators.spliteratorUnknownSize(iterator(), traits), false).onClose(this::close);
  }

  /**
   * Pieces of text as they come, joined the whole text; a request that failed throws its error at the end, a cancelled one just ends.
   * Closing the stream closes the request.
   */
  public Stream<String> text() {
    return stream().mapMulti((event, pieces) -> {
      if (event instanceof Event.Tokens tokens && !tokens.text().isEmpty()) pieces.accept(tokens.text());
      if (event instanceof Event.Finished end) throwErrorOf(end);
    });
  }

  /**
   * Waits for the end and joins what has not been taken. A cancelled request gives what there was.
   *
   * @throws InlayException the request failed: {@link DeadlineExceededException}, {@link ResourceExhaustedException}, ...
   * @throws CancelledException the waiting thread was interrupted; the request goes on
   * @throws NoSuchElementException the last event was taken before
   */
  public Generation result() {
    Generation.Builder builder = new Generation.Builder();
    for (Event event : this) {
      if (event instanceof Event.Tokens tokens) builder.add(tokens);
      if (event instanceof Event.Finished end) {
        throwErrorOf(end);
        return builder.build(end);
      }
    }
    throw new NoSuchElementException("the request's last event was taken");
  }

  /**
   * Waits for the end, and gives the vector that {@link RequestOptions#embedding} asked for.
   *
   * @throws InlayException the request failed; {@link CancelledException}: it was cancelled, or the waiting thread interrupted
   * @throws NoSuchElementException none was asked for, or it was taken before
   */
  public float[] embedding() {
    return vector(false);
  }

  /** The same of the scores that {@link RequestOptions#classification} asked for. */
  public float[] scores() {
    return vector(true);
  }

  private float[] vector(boolean ofLabels) {
    float[] vector = null;
    for (Event event : this) {
      if (!ofLabels && event instanceof Event.Embedding embedding) vector = embedding.vector();
      if (ofLabels && event instanceof Event.Classification labels) vector = labels.scores();
      if (event instanceof Event.Finished end) {
        throwErrorOf(end);
        if (end.reason() == FinishReason.CANCELLED)
          throw new CancelledException(Status.CANCELLED.ordinal(), "the request was cancelled");
      }
    }
    if (vector == null)
      throw new NoSuchElementException("the request has no " + (ofLabels ? "scores" : "embedding") + ", or they were taken before");
    return vector;
  }

  // ---- On other threads

  /** {@link #resultAsync(Executor)} on a thread of Inlay's own. */
  public CompletableFuture<Generation> resultAsync() {
    return resultAsync(Threads.executor());
  }

  /**
   * {@link #result()} by {@code executor}, one of whose threads it takes until the end; then the request is closed. A future that is
   * cancelled or times out cancels the request.
   */
  public CompletableFuture<Generation> resultAsync(Executor executor) {
    CompletableFuture<Generation> future = CompletableFuture.supplyAsync(() -> {
      try (this) {
        return result();
      }
    }, executor);
    future.whenComplete((generation, error) -> {
      if (error != null) cancelIfOpen();
    });
    return future;
  }

  /** {@link #publisher(Executor)} on threads of Inlay's own. */
  public Flow.Publisher<Event> publisher() {
    return publisher(Threads.executor());
  }

  /**
   * Publishes the events to one subscriber, as many as it requests; takes a thread of {@code executor} while it waits for them. A
   * request that fails ends with {@code onError}, others with their {@link Event.Finished} and {@code onComplete}; then it is closed.
   * Cancelling the subscription cancels it.
   */
  public Flow.Publisher<Event> publisher(Executor executor) {
    return new EventPublisher(this, executor);
  }

  // ---- Inside

  static void throwErrorOf(Event.Finished end) {
    if (end.error().isPresent()) throw end.error().get();
  }

  void cancelIfOpen() {
    try {
      if (!finished) cancel();
    } catch (IllegalStateException e) {
      // Closed: that has cancelled it.
    }
  }

  Event awaitUnchecked() {
    try {
      return await(Long.MAX_VALUE);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new CancelledException(Status.CANCELLED.ordinal(), "interrupted while waiting for an event");
    }
  }

  /** Null: none in time, or none any more. */
  private Event await(long timeoutNanos) throws InterruptedException {
    boolean isStepping = session.model().engine().drive() == Drive.HOST;
    long start = System.nanoTime();
    while (!finished) {
      if (Thread.interrupted()) throw new InterruptedException();
      long left = Math.max(0, timeoutNanos - (System.nanoTime() - start)) / 1000;
      Event event = next(isStepping ? 0 : Math.min(left, SLICE_MICROS));
      if (event != null || finished) return event;
      if (isStepping && left > 0 && !session.model().engine().stepForWaiter()) {
        event = next(Math.min(left, STEPPED_SLICE_MICROS));
        if (event != null) return event;
      }
      if (left == 0) return null;
    }
    return null;
  }

  private Event next(long timeoutMicros) {
    if (finished) return null;
    long[] taken = new long[1];
    int status = call(request -> InlayC.inlay_request_next_event(request, timeoutMicros, taken));
    if (status == Status.END.ordinal()) finished = true;
    if (status != Status.OK.ordinal()) return null;
    Event event = Events.take(taken[0]);
    if (event instanceof Event.Finished) finished = true;
    return event;
  }
}
