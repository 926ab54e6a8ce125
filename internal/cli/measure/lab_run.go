package measure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"fairlead/internal/cli/command"
	"fairlead/internal/kernel"
	"fairlead/internal/lab/expr"
	"fairlead/internal/lab/peer"
	"fairlead/internal/lab/report"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/runner"
	"fairlead/internal/lab/tool"
	"fairlead/internal/plan"

	"github.com/spf13/cobra"
)

func newLabRun(a *command.App) *cobra.Command {
	var choice labChoice
	var machines labMachines
	var files reportFiles
	var seed uint64
	var sessions int
	var past labHistory
	c := &cobra.Command{
		Use:   "run [SUITE] [PATH…]",
		Short: "Build paths, send traffic through them and show what each costs",
		Long: "Run a suite (default: quick), or measure the named paths with the suite's settings.\n" +
			"Everything happens in network namespaces, which are removed at the end. With --server or --client these are\n" +
			"on another machine for one side of the paths. `fairlead lab agent` runs there; --ssh starts it.",
		Example: "  fairlead lab run\n" +
			"  fairlead lab run publish --sessions 5\n" +
			"  fairlead lab run publish --html publish.html --json publish.json\n" +
			"  fairlead lab run proxy --baseline docker-proxy --client local\n" +
			"  fairlead lab run nat --fail-if 'nat.bulk.ratio < 0.8'\n" +
			"  fairlead lab run publish --history --fail-if 'ebpf.throughput.ratio < history.median - 0.05'\n" +
			"  fairlead lab run modes --server 192.0.2.10=TOKEN\n" +
			"  fairlead lab run modes --ssh root@192.0.2.10",
		RunE: func(c *cobra.Command, args []string) error {
			for _, name := range []string{"rounds", "duration"} {
				if f := c.Flags().Lookup(name); f.Changed && strings.Trim(f.Value.String(), "0smhµn.") == "" {
					return command.Usage(fmt.Errorf("%s %s: want more than 0", name, f.Value))
				}
			}
			if sessions < 1 || sessions > maxSessions {
				return command.Usage(fmt.Errorf("sessions %d: want 1 to %d", sessions, maxSessions))
			}
			var err error
			if choice.clients, err = machines.take(choice.clients); err != nil {
				return command.Usage(err)
			}
			s, err := choice.suite(args)
			var omitted []result.Unavailable
			if err == nil && machines.any() {
				omitted, err = runner.Divide(&s, len(choice.loads) > 0)
			}
			if err != nil {
				return command.Usage(err)
			}
			if err := choice.conditionsFor(s, &past); err != nil {
				return command.Usage(err)
			}
			if !c.Flags().Changed("shared") {
				choice.shared = os.Getenv(labShared) != ""
			}
			if !c.Flags().Changed("seed") {
				seed = rand.Uint64N(1e6)
			}
			opt := runner.Options{Suite: s, Sessions: sessions, Seed: seed, Version: a.Version, Tools: choice.tools,
				Docker: choice.docker, Shared: choice.shared, Omitted: omitted}
			return runLab(a, c, opt, machines, files, past, args)
		},
	}
	f := c.Flags()
	f.IntVar(&choice.rounds, "rounds", 0, "number of rounds (default: the suite's)")
	f.IntVar(&sessions, "sessions", 1, "number of whole sessions, each with new topologies and a new random order; "+
		"with 2 or more, a second interval includes the differences between sessions")
	f.DurationVar(&choice.duration, "duration", 0, "length of one measured window, e.g. 2s (default: the suite's)")
	f.Uint64Var(&seed, "seed", 0, "seed for the order of runs and for resampling (default: random, and printed)")
	f.StringSliceVar(&choice.clients, "client", nil, "measure only from these clients: remote (across the wire), local "+
		"(on the paths' host), peer (another sandbox), other-network (a sandbox of another network), outbound (the "+
		"workload's sandbox, to a host across the wire); or measure from another machine, HOST[:PORT][=TOKEN] (see `fairlead "+
		"lab agent`) or ssh://[USER@]HOST[:PORT][/LINK]")
	f.StringVar(&machines.server, "server", "", "machine with the paths and their workloads, as `HOST[:PORT][=TOKEN]` "+
		"(see `fairlead lab agent`) or ssh://[USER@]HOST[:PORT][/LINK] (default: this machine)")
	f.StringVar(&machines.ssh, "ssh", "", "start the agent with ssh on the server's machine, `[USER@]HOST[/LINK]`; short "+
		"for --server ssh://[USER@]HOST[/LINK]")
	f.StringVar(&machines.link, "link", "", "this machine's link to the other one (default: that of the route there)")
	f.StringSliceVar(&choice.loads, "workload", nil, "measure only these workloads, e.g. tcp-bulk,tcp-rr-spin")
	f.IntSliceVar(&choice.mtus, "mtu", nil, "MTUs of the wire, in bytes, at which to measure each path, e.g. "+
		"1500,9000 (default 1500)")
	f.IntVar(&choice.family, "family", int(result.IPv4), "address family of clients, hosts and sandboxes: 4 or 6")
	f.StringVar(&choice.netem, "netem", "", "`CONDITIONS` of the wire in each direction, e.g. "+
		"delay=5ms,jitter=1ms,loss=0.1%,rate=1gbit, as tc netem has them (default: none)")
	f.StringVar(&choice.baseline, "baseline", "", "path to compare with (default: the suite's)")
	f.StringSliceVar(&choice.tools, "with", nil, "also measure with "+strings.Join(tool.Names(),
		", ")+" on the same paths")
	f.StringVar(&choice.docker, "docker-dir", "", "directory with dockerd and the other programs of the Docker "+
		"engine to measure (default: those in PATH)")
	f.BoolVar(&choice.shared, "shared", false, "count runs even if other processes, the hypervisor or another "+
		"laboratory use the CPUs; the report notes it")
	f.StringArrayVar(&choice.conditions, "fail-if", nil, "exit with code 1 if the condition holds, e.g. "+
		"'nat.bulk.ratio < 0.8' or 'nat.bulk.ratio < history.median - 0.05' (repeatable)")
	f.BoolVar(&past.record, "history", false, "record the summary, which fairlead lab history shows")
	f.StringVar(&past.file, "history-file", "", historyFlag)
	files.flags(f)
	return c
}

// maxSessions limits a run to what fits into memory.
const maxSessions = 1000

// labShared is the environment variable that sets --shared, for tests that run
// several sessions at the same time.
const labShared = "FAIRLEAD_LAB_SHARED"

// runLab measures, writes the reports, and evaluates the conditions.
func runLab(a *command.App, c *cobra.Command, opt runner.Options, machines labMachines, files reportFiles,
	past labHistory, named []string) error {
	if err := runner.Engine(opt.Docker); err != nil {
		return command.Usage(err)
	}
	if err := ready(a, &opt); err != nil {
		return command.Usage(err)
	}
	if err := files.check(); err != nil {
		return command.Usage(err)
	}
	release, met, err := runner.Alone(opt.Shared)
	if err != nil {
		return command.Usage(err)
	}
	defer release.Close()
	opt.Laboratories = met
	ctx := c.Context()
	if machines.any() {
		connected, err := machines.connect(ctx, &opt)
		if err != nil {
			return err
		}
		defer connected.end(a)
		watched, cancel := connected.watch(ctx)
		defer cancel(nil)
		ctx = watched
	}
	if err := noteBusy(a, opt); err != nil {
		return err
	}
	noteAbsent(a, opt)
	runs, _ := runner.Runs(opt)
	progress := report.NewProgress(a.Log, runs)
	opt.Progress = func(p runner.Progress) {
		if p.Ended {
			progress.Done()
		} else {
			progress.Start(p.Session, p.Sessions, p.Round, p.Rounds, p.Case)
		}
	}
	rep, err := runner.Run(ctx, opt)
	progress.Clear()
	if ctx.Err() != nil && c.Context().Err() == nil {
		return errors.Join(context.Cause(ctx), err)
	}
	if errors.Is(err, runner.ErrBaseline) || errors.Is(err, runner.ErrNothing) {
		return command.Usage(err)
	}
	if err != nil {
		return err
	}
	if err := show(a, rep, files); err != nil {
		return err
	}
	return errors.Join(gaps(rep, named), report.Unmeasured(rep), past.judge(a, rep))
}

// gaps returns an error for each path that was not measured although its name was
// given or building it failed.
func gaps(rep *result.Report, named []string) error {
	var errs []error
	for _, u := range rep.Unavailable {
		if !slices.Contains(rep.Paths, u.Path) && (u.Failed || slices.Contains(named, u.Path)) {
			errs = append(errs, fmt.Errorf("path %s was not measured: %s", u.Path, u.Reason))
		}
	}
	return errors.Join(errs...)
}

// noteBusy reports before the measurement that other processes keep the machine
// busy.
func noteBusy(a *command.App, opt runner.Options) error {
	if opt.Shared {
		return nil
	}
	why, err := runner.Busy()
	if why != "" {
		a.Err.Note("fairlead: %s: runs at the same time do not count; end them, or count these runs with --shared", why)
	}
	return err
}

// noteAbsent reports before the measurement which paths will be missing in the
// report. The runner returns an error if the baseline is one of them.
func noteAbsent(a *command.App, opt runner.Options) {
	if opt.Server != nil {
		return // the runner asks the machine
	}
	for _, name := range opt.Suite.Paths {
		p := opt.Suite.Path(name)
		if why := peer.Unavailable(p, opt.Facts, opt.Docker); why != "" && name != opt.Suite.Baseline {
			a.Err.Note("fairlead: path %s is not measured: %s", name, why)
		}
	}
}

// ready checks whether a session can begin, and removes what a killed session
// left behind.
func ready(a *command.App, opt *runner.Options) error {
	var needed []plan.Feature
	for _, name := range opt.Suite.Paths {
		needed = append(needed, rig.Features(opt.Suite.Path(name))...)
	}
	facts, err := kernel.ProbeFor(needed)
	if err != nil {
		return err
	}
	opt.Facts = facts
	if opt.Suite.Netem != nil && opt.Server == nil {
		if err := kernel.ProbeNetem(); err != nil {
			return fmt.Errorf("netem: %w", err)
		}
	}
	swept, err := runner.Admit(opt.Suite)
	for _, name := range swept {
		a.Err.Note("fairlead: removed %s, which a killed laboratory left behind", name)
	}
	return err
}

// errThreshold reports that a --fail-if condition holds. The condition has been
// printed before.
var errThreshold = errors.New("a --fail-if condition holds")

// judge prints every condition that holds, and returns errThreshold if one does.
func judge(a *command.App, rep *result.Report, conditions []*expr.Expr) error {
	hit := false
	for _, e := range conditions {
		failed, explanation, err := e.Eval(rep)
		if err != nil {
			return fmt.Errorf("fail-if %s: %w", e, err)
		}
		if failed {
			hit = true
			a.Err.Note("fairlead: fail-if: %s", explanation)
		}
	}
	if hit {
		return errThreshold
	}
	return nil
}
