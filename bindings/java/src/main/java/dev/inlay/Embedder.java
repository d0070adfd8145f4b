package dev.inlay;

import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Function;

/** One call of {@link Model#embed} or {@link Model#classify}: a window of requests that moves over the inputs. */
final class Embedder {
  /** Requests under way: enough to fill any step, and few beside the engine's queue. */
  private static final int AT_ONCE = 512;

  private final Model model;
  private final List<Input> inputs;
  private final RequestOptions options;
  private final Function<Request, float[]> result;
  private final Queue<Request> running = new ConcurrentLinkedQueue<>();
  private volatile boolean cancelled;

  Embedder(Model model, List<Input> inputs, EmbeddingOptions options) {
    this(model, inputs, options.request(), Request::embedding);
  }

  Embedder(Model model, List<Input> inputs, RequestOptions options, Function<Request, float[]> result) {
    this.model = model;
    this.inputs = List.copyOf(inputs);
    this.options = options;
    this.result = result;
  }

  List<float[]> run() {
    List<float[]> vectors = new ArrayList<>(inputs.size());
    try {
      int submitted = 0;
      while (vectors.size() < inputs.size()) {
        if (submitted < inputs.size() && submitted - vectors.size() < AT_ONCE && submit(inputs.get(submitted))) {
          ++submitted;
          continue;
        }
        vectors.add(result.apply(running.element()));
        close(running.remove());
      }
      return vectors;
    } finally {
      running.forEach(Embedder::close);
    }
  }

  /** From any thread. */
  void cancel() {
    cancelled = true;
    running.forEach(Request::cancelIfOpen);
  }

  /** False: the queue is full, and has room again when one of these has ended. */
  private boolean submit(Input input) {
    Session session = model.newSession();
    Request request;
    try {
      request = session.submit(input, options);
    } catch (RuntimeException | Error e) {
      session.close();
      if (e instanceof ResourceExhaustedException && !running.isEmpty()) return false;
      throw e;
    }
    running.add(request);
    // Only now cancel() would find it.
    if (cancelled) request.cancelIfOpen();
    return true;
  }

  private static void close(Request request) {
    request.close();
    request.session().close();
  }
}
