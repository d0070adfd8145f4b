// Who takes a request's events. As long as nobody awaits any, whoever reads a request takes its events from the library itself: no
// other thread, no hand-over. From the first await on, one thread of this engine, the pump, takes all events and puts each into its
// request's inbox, so that hundreds of awaits block no threads. Must not know sessions or what events say.
using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;
using static Inlay.Native.InlayNative;

namespace Inlay.Native
{
    internal sealed class EventRouter
    {
        // The longest that a thread waits in the library: it then sees whether the engine is closing or the pump is starting.
        internal const int SliceMs = 50;

        private readonly object gate = new object();
        private readonly Dictionary<IntPtr, Inbox> inboxes = new Dictionary<IntPtr, Inbox>();
        private readonly EngineHandle engine;
        private long lastId;
        private int direct;
        private bool pumping, stopping;
        private Thread pump;

        internal EventRouter(EngineHandle engine) { this.engine = engine; }

        internal bool Stopped
        {
            get { lock (gate) return stopping; }
        }

        // Before its request is submitted: an event may come before that call returns.
        internal IntPtr Open(Inbox inbox)
        {
            lock (gate)
            {
                if (stopping) throw new ObjectDisposedException(typeof(Engine).FullName);
                var id = new IntPtr(++lastId);
                inboxes.Add(id, inbox);
                Monitor.PulseAll(gate);
                return id;
            }
        }

        internal void Close(IntPtr id)
        {
            lock (gate) inboxes.Remove(id);
        }

        // True: the caller may take events from the library, until LeaveDirect().
        internal bool EnterDirect()
        {
            Interlocked.Increment(ref direct);
            if (!Volatile.Read(ref pumping)) return true;
            LeaveDirect();
            return false;
        }

        internal void LeaveDirect() { Interlocked.Decrement(ref direct); }

        internal void StartPump()
        {
            if (Volatile.Read(ref pumping)) return;
            lock (gate)
            {
                if (pumping || stopping) return;
                Volatile.Write(ref pumping, true);
                // A full fence, as in EnterDirect(): either that one sees `pumping` or the pump sees its `direct`.
                Interlocked.MemoryBarrier();
                pump = new Thread(Pump) { IsBackground = true, Name = "Inlay events" };
                pump.Start();
            }
        }

        // Whoever waits gets ObjectDisposedException. `wait`: until the pump has left the library.
        internal void Stop(bool wait)
        {
            Thread running;
            lock (gate)
            {
                stopping = true;
                running = pump;
                Monitor.PulseAll(gate);
            }
            if (running == null) FailAll(Closed());
            else if (wait) running.Join();
        }

        private static Exception Closed() { return new ObjectDisposedException(typeof(Engine).FullName); }

        private void Pump()
        {
            Exception failure = null;
            try
            {
                // Those who are still in the library by themselves come out first, so that events stay in order.
                while (Volatile.Read(ref direct) != 0) Thread.Sleep(1);
                while (WaitForWork()) TakeOne();
            }
            catch (Exception e)
            {
                failure = e;
            }
            lock (gate) stopping = true;
            FailAll(failure ?? Closed());
        }

        private bool WaitForWork()
        {
            lock (gate)
            {
                while (inboxes.Count == 0 && !stopping) Monitor.Wait(gate);
                return !stopping;
            }
        }

        private void TakeOne()
        {
            int status = inlay_event_next(engine, SliceMs * 1000, out IntPtr taken, out IntPtr error);
            if (status == INLAY_TIMEOUT) return;
            Errors.Check(status, error);
            RequestEvent made = EventReader.Take(taken, out IntPtr id);
            if (made == null) return;
            Inbox inbox;
            lock (gate)
            {
                if (!inboxes.TryGetValue(id, out inbox)) return;
                // A finished request that nobody has disposed yet must not keep the pump awake.
                if (made is FinishedEvent) inboxes.Remove(id);
            }
            inbox.Put(made);
        }

        private void FailAll(Exception failure)
        {
            List<Inbox> failed;
            lock (gate)
            {
                failed = new List<Inbox>(inboxes.Values);
                inboxes.Clear();
            }
            foreach (Inbox inbox in failed) inbox.Fail(failure);
        }
    }

    // Events of one request that the pump took. It must not hold the request: that one's finalizer is what cancels an abandoned one.
    internal sealed class Inbox
    {
        private readonly Queue<RequestEvent> events = new Queue<RequestEvent>();
        private TaskCompletionSource<bool> waiter;
        private bool ended, untilEnd;
        private Exception failure;

        internal void Put(RequestEvent made)
        {
            TaskCompletionSource<bool> ready = null;
            lock (events)
            {
                if (failure != null) return;
                events.Enqueue(made);
                ended |= made is FinishedEvent;
                if (ended || !untilEnd) ready = TakeWaiter();
            }
            if (ready != null) ready.SetResult(true);
        }

        internal void Fail(Exception why)
        {
            TaskCompletionSource<bool> ready;
            lock (events)
            {
                if (ended) return;
                failure = why;
                ready = TakeWaiter();
            }
            if (ready != null) ready.SetResult(true);
        }

        // Null: nothing came in time. What had come before a failure is handed out first.
        internal RequestEvent Take(int timeoutMs)
        {
            lock (events)
            {
                if (events.Count == 0 && failure == null && timeoutMs > 0) Monitor.Wait(events, timeoutMs);
                if (events.Count > 0) return events.Dequeue();
                if (failure != null) throw failure;
                return null;
            }
        }

        // Done when Take() has something, or with `end` when the last event is there.
        internal Task WaitAsync(bool end)
        {
            lock (events)
            {
                if (waiter != null) throw new InvalidOperationException("Another call awaits this request's events.");
                if (failure != null || ended || (!end && events.Count > 0)) return Task.CompletedTask;
                untilEnd = end;
                // Nobody's code may run on the pump.
                waiter = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
                return waiter.Task;
            }
        }

        // With the lock held; wakes whoever waits in Take() too.
        private TaskCompletionSource<bool> TakeWaiter()
        {
            Monitor.PulseAll(events);
            TaskCompletionSource<bool> taken = waiter;
            waiter = null;
            untilEnd = false;
            return taken;
        }
    }
}
