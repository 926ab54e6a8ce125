package load_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/lab/load"
)

// The benchmarks compare this generator with other tools on the same loopback. One
// iteration is one round: this generator, the tool, the tool, this generator. So a
// drift of the machine's speed favours neither. The ratio is the median over the
// rounds; run several: go test -run=- -bench=. -benchtime=7x ./internal/lab/load

// benchWindow is the length of one measurement.
const benchWindow = time.Second

const toolPort = 15201

// bench is a namespace with a pair of this generator, in which other tools run too.
type bench struct {
	pair
	ns     *os.File
	target netip.AddrPort
	cores  cores
}

// cores are the CPUs of client and server.
type cores struct{ client, server int }

var (
	apart    = cores{0, 1}
	together = cores{0, 0}
)

func newBench(b *testing.B, tool string, on cores) *bench {
	b.Helper()
	for _, name := range []string{tool, "taskset"} {
		if _, err := exec.LookPath(name); err != nil {
			b.Skipf("needs %s", name)
		}
	}
	if runtime.NumCPU() <= max(on.client, on.server) {
		b.Skip("needs two CPUs")
	}
	ns := newNetns(b)
	p := newPair(b, ns)
	pin(b, p.client.PID(), on.client)
	pin(b, p.server.PID(), on.server)
	return &bench{pair: p, ns: ns, target: p.listen(b, v4), cores: on}
}

// pin binds all threads of a process to a CPU; later threads inherit this.
func pin(b *testing.B, pid, cpu int) {
	b.Helper()
	out, err := exec.Command("taskset", "-a", "-p", "-c", strconv.Itoa(cpu), strconv.Itoa(pid)).CombinedOutput()
	if err != nil {
		b.Fatalf("pin: %v\n%s", err, out)
	}
}

// on returns a command that runs pinned to a CPU.
func on(cpu int, args []string) *exec.Cmd {
	return exec.Command("taskset", slices.Concat([]string{"-c", strconv.Itoa(cpu)}, args)...)
}

// compare runs the rounds and reports the median ratio ours/theirs.
func compare(b *testing.B, unit string, ours, theirs func() float64) {
	b.Helper()
	var a, z, ratios []float64
	for b.Loop() {
		a1, z1, z2, a2 := ours(), theirs(), theirs(), ours()
		a, z = append(a, (a1+a2)/2), append(z, (z1+z2)/2)
		ratios = append(ratios, (a1+a2)/(z1+z2))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(a), "ours-"+unit)
	b.ReportMetric(median(z), "theirs-"+unit)
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(slices.Min(ratios), "ratio-min")
	b.ReportMetric(slices.Max(ratios), "ratio-max")
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// BenchmarkBulkAgainstIperf3 must not fall below a ratio of 0.95.
func BenchmarkBulkAgainstIperf3(b *testing.B) {
	for _, streams := range []int{1, 4, 10} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			e := newBench(b, "iperf3", apart)
			spec := load.Spec{Workload: load.TCPBulk, Streams: streams}
			compare(b, "Gbit/s",
				func() float64 { return e.ours(b, spec).Metrics()["throughput"] / 1e9 },
				func() float64 { return e.iperf3(b, streams) / 1e9 })
		})
	}
}

func (e *bench) iperf3(b *testing.B, streams int) float64 {
	out := e.tool(b, words("iperf3 -s -p", toolPort),
		words("iperf3 -J -c", v4, "-p", toolPort, "-P", streams, "-t", benchWindow.Seconds()))
	var report struct {
		End struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		b.Fatalf("iperf3: %v\n%s", err, out)
	}
	return report.End.Received.Rate
}

// BenchmarkRRAgainstQperf compares means. qperf prints the mean of one direction.
func BenchmarkRRAgainstQperf(b *testing.B) {
	scale := map[string]float64{"ns": 1e-3, "us": 1, "ms": 1e3}
	figure := regexp.MustCompile(`latency\s+=\s+([\d.]+) (ns|us|ms)`)
	for name, on := range map[string]cores{"together": together, "apart": apart} {
		b.Run("cores="+name, func(b *testing.B) {
			e := newBench(b, "qperf", on)
			compare(b, "mean-us",
				func() float64 {
					m := e.ours(b, load.Spec{Workload: load.TCPRR})
					return 1e6 * m.Seconds / float64(m.Transactions)
				},
				func() float64 {
					m := e.figure(b, figure, words("qperf -lp", toolPort),
						words("qperf -lp", toolPort, "-t", benchWindow.Seconds(), v4, "tcp_lat"))
					return 2 * number(b, m[1]) * scale[m[2]]
				})
		})
	}
}

// BenchmarkRRAgainstSockperf compares the median round trip in both modes.
// Ratios within 0.9 and 1.1 pass.
func BenchmarkRRAgainstSockperf(b *testing.B) {
	figure := regexp.MustCompile(`percentile 50\.000\s*=\s*([\d.]+)`)
	for name, tt := range map[string]struct {
		mode  load.Mode
		cores cores
		flags string
	}{
		"mode=block/cores=together": {load.Block, together, ""},
		"mode=block/cores=apart":    {load.Block, apart, ""},
		"mode=spin/cores=apart":     {load.Spin, apart, "--nonblocked"},
	} {
		b.Run(name, func(b *testing.B) {
			e := newBench(b, "sockperf", tt.cores)
			compare(b, "p50-us",
				func() float64 {
					m := e.ours(b, load.Spec{Workload: load.TCPRR, Mode: tt.mode, Size: 14})
					return 1e6 * m.Metrics()["latency_p50"]
				},
				func() float64 {
					at := words("--tcp -i", v4, "-p", toolPort, tt.flags)
					m := e.figure(b, figure, slices.Concat(words("sockperf server"), at),
						slices.Concat(words("sockperf ping-pong --full-rtt -m 14 -t", benchWindow.Seconds()), at))
					return number(b, m[1])
				})
		})
	}
}

// ours measures one window of this generator.
func (e *bench) ours(b *testing.B, s load.Spec) load.Measurement {
	s.Warmup, s.Duration = benchWindow/5, benchWindow
	return e.run(b, e.target, s)
}

// tool runs another tool's server and client, and returns the client's output.
func (e *bench) tool(b *testing.B, server, client []string) string {
	b.Helper()
	s, err := child.Start(b.Context(), on(e.cores.server, server), child.Place{Netns: e.ns})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Kill() }()
	await(b, s)
	var out strings.Builder
	cmd := on(e.cores.client, client)
	cmd.Stdout, cmd.Stderr = &out, &out
	c, err := child.Start(b.Context(), cmd, child.Place{Netns: e.ns})
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		b.Fatalf("%s: %v\n%s", cmd, err, out.String())
	}
	return out.String()
}

// figure runs a tool and finds its result.
func (e *bench) figure(b *testing.B, figure *regexp.Regexp, server, client []string) []string {
	b.Helper()
	out := e.tool(b, server, client)
	m := figure.FindStringSubmatch(out)
	if m == nil {
		b.Fatalf("%v printed no figure:\n%s", client, out)
	}
	return m
}

// await returns when another tool's server listens.
func await(b *testing.B, p *child.Process) {
	b.Helper()
	for deadline := time.Now().Add(5 * time.Second); !listening(p.Cmd.Process.Pid); {
		select {
		case <-p.Done():
			b.Fatalf("%s ended: %v", p.Cmd, p.Wait())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			b.Fatalf("%s does not listen", p.Cmd)
		}
	}
}

// listening reads the socket tables of the process's namespace. It does not connect,
// because some of these servers would serve that connection as their client.
func listening(pid int) bool {
	for _, table := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", toolPort)) && f[3] == "0A" {
				return true
			}
		}
	}
	return false
}

// words splits its arguments into the words of a command line.
func words(args ...any) []string { return strings.Fields(fmt.Sprintln(args...)) }

func number(b *testing.B, s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		b.Fatal(err)
	}
	return v
}
