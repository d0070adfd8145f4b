using System;
using System.Collections;
using System.Collections.Generic;
using System.Diagnostics;
using System.Threading;
using System.Threading.Tasks;
using Inlay.Native;
using static Inlay.Native.InlayNative;

namespace Inlay
{
    /// <summary>One generation in a session. Enumerate it for its events, poll it with <see cref="TryNext(TimeSpan, out RequestEvent)"/>
    /// (games), or await <see cref="NextAsync"/>. Each event is handed out once. Thread-safe. Disposing it, or dropping it, cancels the
    /// generation if it is unfinished; what it had generated stays in the session's log.</summary>
    public sealed class Request : IDisposable, IEnumerable<RequestEvent>
    {
        private readonly Session session;
        private readonly EventRouter router;
        private readonly Inbox inbox;
        private readonly RequestHandle handle;
        private volatile FinishedEvent finish;

        private Request(Session session, EventRouter router, Inbox inbox, RequestHandle handle)
        {
            this.session = session;
            this.router = router;
            this.inbox = inbox;
            this.handle = handle;
        }

        internal static Request Submit(Session session, inlay_request_options options)
        {
            EventRouter router = session.Model.Engine.Router;
            var inbox = new Inbox();
            IntPtr id = router.Open(inbox);
            try
            {
                options.user_data = id;
                Errors.Check(inlay_session_submit(session.Handle, options, out RequestHandle handle, out IntPtr error), error);
                handle.Id = id;
                handle.Router = router;
                return new Request(session, router, inbox, handle);
            }
            catch
            {
                router.Close(id);
                throw;
            }
        }

        /// <summary>The session it runs in.</summary>
        public Session Session { get { return session; } }

        /// <summary>The last event, once it was taken; null before.</summary>
        public FinishedEvent Finished { get { return finish; } }

        /// <summary>Ends it within a step, in whatever state it is; a <see cref="FinishedEvent"/> follows. No effect once finished.</summary>
        /// <exception cref="ObjectDisposedException">The request or its engine was disposed.</exception>
        public void Cancel() { Errors.Check(inlay_request_cancel(handle, out IntPtr error), error); }

        /// <summary>The oldest event, if there is one. Does not wait.</summary>
        /// <returns>False when there is none now, or none any more.</returns>
        /// <exception cref="ObjectDisposedException">The request or its engine was disposed.</exception>
        public bool TryNext(out RequestEvent next) { return TryNext(TimeSpan.Zero, out next); }

        /// <summary>Waits for an event. It never steps: of an engine that the host drives, another thread must.</summary>
        /// <param name="timeout">The longest to wait; <see cref="Timeout.InfiniteTimeSpan"/>: no limit.</param>
        /// <param name="next">The oldest event.</param>
        /// <returns>False when none came in time, or none comes any more: then <see cref="Finished"/> is set.</returns>
        /// <exception cref="ObjectDisposedException">The request or its engine was disposed.</exception>
        public bool TryNext(TimeSpan timeout, out RequestEvent next)
        {
            bool forever = timeout == Timeout.InfiniteTimeSpan;
            if (timeout < TimeSpan.Zero && !forever) throw new ArgumentOutOfRangeException(nameof(timeout), timeout, "Must not be negative.");
            long begin = timeout == TimeSpan.Zero ? 0 : Stopwatch.GetTimestamp();
            while (true)
            {
                long leftUs = forever ? SliceUs : timeout.Ticks / 10;
                if (begin != 0 && !forever) leftUs -= (long)((Stopwatch.GetTimestamp() - begin) * 1e6 / Stopwatch.Frequency);
                next = Take(Math.Max(0, Math.Min(leftUs, SliceUs)));
                if (next != null) return true;
                if (finish != null || leftUs <= SliceUs && !forever) return false;
            }
        }

        /// <summary>The next event, or null after the last one. Blocks no thread. From its first use on, a thread of the engine takes events
        /// for all of that engine's requests. One call at a time for each request. To stop early, <see cref="Cancel"/>.</summary>
        /// <exception cref="ObjectDisposedException">The request or its engine was disposed, also meanwhile.</exception>
        public async Task<RequestEvent> NextAsync()
        {
            router.StartPump();
            while (finish == null)
            {
                RequestEvent next = Take(0);
                if (next != null) return next;
                await inbox.WaitAsync(false).ConfigureAwait(false);
            }
            return null;
        }

        /// <summary>All events up to and including the last one, waiting for each; a host-driven engine is stepped meanwhile.</summary>
        public IEnumerator<RequestEvent> GetEnumerator()
        {
            for (RequestEvent next = Await(); next != null; next = Await()) yield return next;
        }

        IEnumerator IEnumerable.GetEnumerator() { return GetEnumerator(); }

        /// <summary>Cancels it if it is unfinished, and drops its events that were not taken.</summary>
        public void Dispose()
        {
            // First: the release cancels, and whoever awaits must not take that for the generation's end.
            inbox.Fail(new ObjectDisposedException(typeof(Request).FullName));
            handle.Dispose();
        }

        private const long SliceUs = EventRouter.SliceMs * 1000;

        // Done when the last event can be taken: awaiting each one would cost a thread switch a token.
        internal Task WhenFinished()
        {
            router.StartPump();
            return finish != null ? Task.CompletedTask : inbox.WaitAsync(true);
        }

        // Waits and, where the host drives, steps; null after the last event.
        internal RequestEvent Await()
        {
            Engine engine = session.Model.Engine;
            long wait = engine.Drive == Drive.Host ? 0 : SliceUs;
            while (finish == null)
            {
                RequestEvent next = Take(wait);
                if (next != null) return next;
                // Nothing to step: another thread does, or there is no room yet. Then not without a pause.
                if (engine.Drive == Drive.Host) wait = engine.StepOnce() ? 0 : 1000;
            }
            return null;
        }

        // After the last event: throws where the generation did not come to its end.
        internal void ThrowUnlessDone(CancellationToken cancellation)
        {
            // The engine was disposed before a thread of it took events: nobody takes the last one.
            if (finish == null) throw new ObjectDisposedException(typeof(Engine).FullName);
            if (finish.Reason == FinishReason.Error) throw Errors.Make(finish.Code, finish.Message);
            if (finish.Reason != FinishReason.Cancelled) return;
            // Disposing the engine cancels what runs.
            if (router.Stopped && !cancellation.IsCancellationRequested) throw new ObjectDisposedException(typeof(Engine).FullName);
            throw new OperationCanceledException("The generation was cancelled.", cancellation);
        }

        // For the tokens of callers: must not throw where the request has just been disposed.
        internal void CancelQuietly()
        {
            try
            {
                Cancel();
            }
            catch (ObjectDisposedException)
            {
            }
        }

        // At most a slice of time; null: nothing came.
        private RequestEvent Take(long waitUs)
        {
            if (finish != null) return null;
            RequestEvent taken;
            if (router.EnterDirect())
            {
                try
                {
                    taken = TakeDirect(waitUs);
                }
                finally
                {
                    router.LeaveDirect();
                }
            }
            else
            {
                taken = inbox.Take((int)((waitUs + 999) / 1000));
            }
            if (taken is FinishedEvent last) finish = last;
            return taken;
        }

        private RequestEvent TakeDirect(long waitUs)
        {
            int status = inlay_request_next_event(handle, (ulong)waitUs, out IntPtr taken, out IntPtr error);
            // END: another thread has the last event in its hands.
            if (status == INLAY_TIMEOUT || status == INLAY_END) return null;
            Errors.Check(status, error);
            RequestEvent made = EventReader.Take(taken, out IntPtr id);
            if (made is FinishedEvent) router.Close(id);
            return made;
        }
    }
}
