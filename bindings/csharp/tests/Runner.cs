// Runs the test cases of the classes named, or all; prints one line each. A case is a public static method of a class in Inlay.Tests whose
// name ends in "Test".
using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using System.Reflection;
using System.Threading.Tasks;

namespace Inlay.Tests
{
    internal static class Runner
    {
        private static int Main(string[] names)
        {
            if (names.Length == 1 && names[0] == "exit") return ExitWhileWorking();
            var cases = (from type in Assembly.GetExecutingAssembly().GetTypes()
                         where type.Name.EndsWith("Test") && (names.Length == 0 || names.Contains(type.Name))
                         from method in type.GetMethods(BindingFlags.Public | BindingFlags.Static | BindingFlags.DeclaredOnly)
                         select method).ToList();
            if (cases.Count == 0)
            {
                Console.Error.WriteLine("No such tests.");
                return 2;
            }
            int failed = 0;
            foreach (MethodInfo each in cases)
            {
                var watch = Stopwatch.StartNew();
                string name = each.DeclaringType.Name + "." + each.Name;
                try
                {
                    if (each.Invoke(null, null) is Task task) task.GetAwaiter().GetResult();
                    Console.WriteLine("ok     {0} ({1} ms)", name, watch.ElapsedMilliseconds);
                }
                catch (Exception e)
                {
                    ++failed;
                    Console.WriteLine("FAILED {0}: {1}", name, e is TargetInvocationException ? e.InnerException : e);
                }
                Console.Out.Flush();
            }
            Console.WriteLine("{0} of {1} passed", cases.Count - failed, cases.Count);
            return failed == 0 ? 0 : 1;
        }

        // A program that ends with everything still open and at work must just end.
        private static int ExitWhileWorking()
        {
            var engine = new Engine(new EngineOptions { LogLevel = EngineLogLevel.Debug, Log = (level, message) => { } });
            Model model = engine.LoadModel(Env.Model);
            for (int i = 0; i < 4; ++i)
            {
                model.CreateSession().GenerateAsync("Once upon a time,", new GenerateOptions { IgnoreEos = true });
            }
            Request request = model.CreateSession().Submit("The fox", new GenerateOptions { IgnoreEos = true });
            Check.True(request.TryNext(TimeSpan.FromSeconds(60), out RequestEvent first));
            Console.WriteLine("leaving");
            return 0;
        }
    }

    internal static class Env
    {
        internal static readonly string Model = Get("INLAY_TEST_MODEL");
        internal static readonly string SmallModel = Path.Combine(Get("INLAY_TEST_DATA"), "models/pocket-1m");
        internal static readonly string Data = Get("INLAY_TEST_DATA");

        private static string Get(string name)
        {
            return Environment.GetEnvironmentVariable(name) ?? throw new Exception("Set " + name + " (ctest does).");
        }

        // The lines that the C program prints.
        internal static string[] Reference(params string[] arguments)
        {
            var start = new ProcessStartInfo(Get("INLAY_TEST_REFERENCE"), string.Join(" ", arguments.Select(each => "\"" + each + "\"")))
            {
                RedirectStandardOutput = true,
                UseShellExecute = false
            };
            using (Process process = Process.Start(start))
            {
                string output = process.StandardOutput.ReadToEnd();
                process.WaitForExit();
                Check.Equal(0, process.ExitCode);
                return output.Split('\n');
            }
        }

        internal static Engine NewEngine(Drive drive = Drive.Thread)
        {
            return new Engine(new EngineOptions { Drive = drive, Backend = Backend.Cpu });
        }

        internal static string TempFile()
        {
            return Path.Combine(Path.GetTempPath(), "inlay_csharp_" + Guid.NewGuid().ToString("N"));
        }
    }

    internal sealed class CheckFailed : Exception
    {
        internal CheckFailed(string message) : base(message) { }
    }

    internal static class Check
    {
        internal static void True(bool value, string what = "not true")
        {
            if (!value) throw new CheckFailed(what);
        }

        internal static void Equal<T>(T expected, T actual)
        {
            if (!EqualityComparer<T>.Default.Equals(expected, actual))
                throw new CheckFailed("expected <" + expected + ">, got <" + actual + ">");
        }

        internal static void Same<T>(IEnumerable<T> expected, IEnumerable<T> actual)
        {
            if (!expected.SequenceEqual(actual))
                throw new CheckFailed("expected [" + string.Join(", ", expected) + "], got [" + string.Join(", ", actual) + "]");
        }

        internal static void Contains(string part, string whole)
        {
            if (!whole.Contains(part)) throw new CheckFailed("no <" + part + "> in <" + whole + ">");
        }

        internal static void Near(double expected, double actual, double tolerance)
        {
            if (!(Math.Abs(expected - actual) <= tolerance)) throw new CheckFailed("expected " + expected + ", got " + actual);
        }

        internal static T Throws<T>(Action action) where T : Exception
        {
            try
            {
                action();
            }
            catch (T e)
            {
                return e;
            }
            throw new CheckFailed("no " + typeof(T).Name);
        }

        internal static async Task<T> ThrowsAsync<T>(Task task) where T : Exception
        {
            try
            {
                await task;
            }
            catch (T e)
            {
                return e;
            }
            throw new CheckFailed("no " + typeof(T).Name);
        }

        internal static void Soon(Func<bool> condition, string what)
        {
            for (var watch = Stopwatch.StartNew(); !condition(); System.Threading.Thread.Sleep(2))
                True(watch.Elapsed < TimeSpan.FromSeconds(60), "never: " + what);
        }
    }
}
