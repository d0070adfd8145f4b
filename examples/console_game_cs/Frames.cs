// How long frames took, and when the next one is due.
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.Linq;
using System.Threading;
using Inlay;

internal sealed class Frames
{
    private readonly double frameMs;
    private readonly Stopwatch clock = Stopwatch.StartNew();
    private readonly List<double> frames = new List<double>(), steps = new List<double>();
    private double begin, due;

    internal Frames(double frameMs) { this.frameMs = frameMs; }

    internal void Begin() { begin = clock.Elapsed.TotalMilliseconds; }

    // Frames in which nobody spoke would only make the others look better.
    internal void End(StepResult step)
    {
        if (step.Requests == 0) return;
        frames.Add(clock.Elapsed.TotalMilliseconds - begin);
        steps.Add(step.Duration.TotalMilliseconds);
    }

    internal void Wait()
    {
        // A late frame moves those after it.
        due = Math.Max(due + frameMs, clock.Elapsed.TotalMilliseconds);
        double wait = due - clock.Elapsed.TotalMilliseconds;
        if (wait > 0) Thread.Sleep(TimeSpan.FromMilliseconds(wait));
    }

    internal void Print(TimeSpan budget)
    {
        Console.WriteLine("frames in which somebody spoke: {0}", frames.Count);
        if (frames.Count == 0) return;
        foreach (var row in frames.GroupBy(each => Math.Min((int)each / 2, 25)).OrderBy(each => each.Key))
        {
            Console.WriteLine("  {0,2} ms{1} {2,5} |{3}{4}", row.Key * 2, row.Key == 25 ? "+" : " ", row.Count(),
                              new string('#', (row.Count() * 50 + frames.Count - 1) / frames.Count),
                              row.Key == (int)frameMs / 2 ? "  <- the next frame is due" : "");
        }
        Console.WriteLine("  late: {0}; the engine's part in ms: p50 {1:0.00}, p99 {2:0.00}, max {3:0.00}{4}",
                          frames.Count(each => each > frameMs), Percentile(steps, 50), Percentile(steps, 99), steps.Max(),
                          budget > TimeSpan.Zero ? string.Format(", of a budget of {0:0.00}", budget.TotalMilliseconds) : "");
    }

    private static double Percentile(List<double> values, int percent)
    {
        return values.OrderBy(each => each).ElementAt(Math.Max(0, (values.Count * percent + 99) / 100 - 1));
    }
}
