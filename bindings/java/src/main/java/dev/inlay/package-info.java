/**
 * Inlay: LLM inference inside a Java program. Start at {@link dev.inlay.Engine}.
 *
 * <p>An {@link dev.inlay.Engine} batches the requests of all sessions; a {@link dev.inlay.Model} is loaded into it; a
 * {@link dev.inlay.Session} is a conversation or document; a {@link dev.inlay.Request} is one generation in it. All are closed by
 * try-with-resources or, at the latest, by the garbage collector, and may be used from any thread.
 */
package dev.inlay;
