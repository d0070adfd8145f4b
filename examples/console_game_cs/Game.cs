// A village whose characters remember. All know the same world, a pinned prefix that is computed once; each has a session of its own that
// goes on from it. Every frame gives the engine the time it can spare, and prints what was said.
using System;
using System.Collections.Concurrent;
using System.IO;
using System.Linq;
using System.Threading;
using Inlay;

internal sealed class Settings
{
    internal string Model = "examples/models/pocket-7m", Load;
    internal int Fps = 60, BudgetUs = 4000;

    internal static Settings Parse(string[] arguments)
    {
        var settings = new Settings();
        for (int i = 0; i + 1 < arguments.Length; i += 2)
        {
            string value = arguments[i + 1];
            if (arguments[i] == "--model") settings.Model = value;
            else if (arguments[i] == "--load") settings.Load = value;
            else if (arguments[i] == "--fps" && int.TryParse(value, out settings.Fps) && settings.Fps > 0) continue;
            else if (arguments[i] == "--budget-us" && int.TryParse(value, out settings.BudgetUs) && settings.BudgetUs > 0) continue;
            else return null;
        }
        return arguments.Length % 2 == 0 ? settings : null;
    }
}

internal static class Game
{
    private const string Help =
        "You come to Wolfbrook. Pia the guard, Sanjay the shopkeeper, Thuy the ferryman and Abdou the librarian are here.\n" +
        "Say something, tell your name, ask the way, buy something. /to NAME turns to another, /all TEXT asks everybody at once,\n" +
        "/stop silences them, /save FOLDER and /load FOLDER keep and bring back what they remember, /frames, /quit.";

    private static int Main(string[] arguments)
    {
        Settings settings = Settings.Parse(arguments);
        if (settings == null)
        {
            Console.Error.WriteLine("usage: Game.exe [--model MODEL] [--fps N] [--budget-us N] [--load FOLDER]");
            return 2;
        }
        try
        {
            Play(settings);
            return 0;
        }
        catch (Exception e) when (e is InlayException || e is IOException || e is DllNotFoundException)
        {
            Console.Error.WriteLine("game: " + e.Message);
            return 1;
        }
    }

    private static void Play(Settings settings)
    {
        using (var engine = new Engine(new EngineOptions { Drive = Drive.Host }))
        using (Model model = engine.LoadModel(settings.Model))
        using (var village = new Village(model))
        {
            if (settings.Load != null) village.Load(settings.Load);
            Console.WriteLine(Help);
            var frames = new Frames(1000.0 / settings.Fps);
            var lines = ReadLines();
            // Not FromMilliseconds(), which rounds to whole ones in mono.
            TimeSpan budget = TimeSpan.FromTicks(settings.BudgetUs * 10L);
            for (bool playing = true; playing; frames.Wait())
            {
                frames.Begin();
                playing = Obey(village, frames, lines);
                // Something is computed in every frame in which somebody speaks, and never for longer than the frame can spare.
                StepResult step = engine.Step(budget);
                village.Listen();
                frames.End(step);
            }
            frames.Print(budget);
            EngineStatistics statistics = engine.GetStatistics();
            Console.WriteLine("world: {0} tokens, computed once for {1} characters; {2} of {3} prompt tokens were not computed again",
                              village.WorldTokens, village.Size, statistics.HitTokens, statistics.LookupTokens);
        }
    }

    // The console blocks; the game must not.
    private static BlockingCollection<string> ReadLines()
    {
        var lines = new BlockingCollection<string>();
        var reader = new Thread(() =>
        {
            for (string line = Console.ReadLine(); line != null; line = Console.ReadLine()) lines.Add(line.Trim());
            lines.CompleteAdding();
        });
        reader.IsBackground = true;
        reader.Start();
        return lines;
    }

    // One line a frame, when nobody speaks; only /stop may interrupt. False: the game is over.
    private static bool Obey(Village village, Frames frames, BlockingCollection<string> lines)
    {
        if (village.Speaking)
        {
            if (lines.FirstOrDefault() == "/stop" && lines.TryTake(out string stop)) village.Stop();
            return true;
        }
        if (!lines.TryTake(out string line)) return !lines.IsCompleted;
        if (line.Length == 0) return true;
        if (Console.IsInputRedirected) Console.WriteLine("> " + line);
        string[] words = line.Split(new[] { ' ' }, 2);
        string rest = words.Length > 1 ? words[1] : "";
        try
        {
            switch (words[0])
            {
                case "/to": village.TurnTo(rest); break;
                case "/all": village.SayToAll(rest); break;
                case "/stop": break;
                case "/save": village.Save(rest); break;
                case "/load": village.Load(rest); break;
                case "/frames": frames.Print(TimeSpan.Zero); break;
                case "/quit": return false;
                default:
                    if (line[0] == '/') Console.WriteLine(Help);
                    else village.Say(line);
                    break;
            }
        }
        catch (Exception e) when (e is InlayException || e is IOException || e is ArgumentException || e is UnauthorizedAccessException)
        {
            Console.WriteLine("({0})", e.Message);
        }
        return true;
    }
}
