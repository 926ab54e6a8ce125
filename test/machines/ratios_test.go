package machines_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
	labreport "fairlead/internal/lab/report"
	"fairlead/internal/lab/result"
)

// ratiosVariable is the environment variable with the arguments of `lab run` for
// BenchmarkRatios.
const ratiosVariable = "FAIRLEAD_RATIOS"

// maxControl is the greatest share of a CPU that the laboratory and the agent may each
// use during windows, without the generator.
const maxControl = 0.01

// traffic are the metrics that are compared. CPU time is not: both machines of this
// benchmark have the same CPUs, so each counts the other machine's time too.
var traffic = []result.Metric{result.Throughput, result.LatencyP50, result.LatencyMean, result.TransactionRate,
	result.RequestRate, result.ConnectionRate, result.PacketRate}

// BenchmarkRatios measures the same suite on one machine, and between two machines that
// are network namespaces with a veth pair between them. It fails if a ratio to the
// baseline differs by more than the noise floor and its interval, or if the processes of
// the control connection use more than maxControl. It needs an idle machine.
func BenchmarkRatios(b *testing.B) {
	args := strings.Fields(os.Getenv(ratiosVariable))
	if len(args) == 0 {
		b.Skip("run make ratios")
	}
	for b.Loop() {
		client, server := kerneltest.Netns(b), kerneltest.Netns(b)
		cable(b, client, server)
		served, token := startAgent(b, server)
		one := session(b, client, args)
		two := session(b, client, append(args, "--server", serverAddress+"="+token))
		served.token(b)
		compareRatios(b, one, two)
		compareControl(b, two)
	}
}

// cable connects two machines with a veth pair.
func cable(b *testing.B, client, server *netns.Namespace) {
	b.Helper()
	kerneltest.Run(b, client, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns",
		fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), server.File().Fd()))
	for i, m := range []*netns.Namespace{client, server} {
		kerneltest.Run(b, m, "ip", "addr", "add", fmt.Sprintf("192.0.2.%d/24", i+1), "dev", "eth0")
		kerneltest.Run(b, m, "ip", "link", "set", "eth0", "up")
	}
}

// session runs a laboratory and returns its report.
func session(b *testing.B, on *netns.Namespace, args []string) *result.Report {
	b.Helper()
	file := filepath.Join(b.TempDir(), "report.json")
	lab := start(b, on, nil, append([]string{"lab", "run", "--shared", "--json", file}, args...)...)
	<-lab.Done() // however long it takes
	if err := lab.Wait(); err != nil {
		b.Fatalf("%v: %s", err, lab.text)
	}
	rep := readReport(b, file)
	return &rep
}

// compareRatios compares the ratios of two sessions.
func compareRatios(b *testing.B, one, two *result.Report) {
	b.Helper()
	compared, worst := 0, 0.0
	for _, c := range labreport.Compare(one, two, 1).Changes {
		if c.Verdict == "" || !slices.Contains(traffic, c.Metric) {
			continue
		}
		text := fmt.Sprintf("%s %s %s: ratio %.3f on one machine, %.3f between two: ×%.3f, 95 %% %.3f to %.3f, "+
			"with sessions %.3f to %.3f: %s", c.Path, c.Workload, c.Metric, c.OldRatio, c.NewRatio, c.Ratio, c.Low,
			c.High, c.SessionLow, c.SessionHigh, c.Verdict)
		fmt.Println(text)
		compared, worst = compared+1, max(worst, math.Abs(math.Log(c.Ratio)))
		if c.Verdict != "≈" {
			b.Error(text)
		}
	}
	if compared == 0 {
		b.Fatal("the sessions have no common figures")
	}
	b.ReportMetric(100*math.Expm1(worst), "%-worst")
}

// compareControl checks the CPU time of the laboratory's and the agent's process during
// windows. The generators are other processes.
func compareControl(b *testing.B, rep *result.Report) {
	b.Helper()
	for _, m := range rep.Machines {
		var used, wall float64
		for _, run := range rep.Runs {
			if len(run.Ledgers) == len(rep.Machines) {
				used, wall = used+run.Ledgers[m.Part].Laboratory, wall+run.Ledgers[m.Part].Wall
			}
		}
		if wall == 0 || used > maxControl*wall {
			b.Errorf("control on the %s's machine: %.4f s of CPU in %.1f s of windows, want at most %.0f %%", m.Part, used, wall,
				100*maxControl)
		}
		b.ReportMetric(100*used/wall, "%-of-a-CPU-"+m.Part)
	}
}
