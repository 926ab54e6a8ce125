package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"fairlead/internal/lab/result"
)

// iperf3 has the fields of iperf3's JSON that Fairlead reads and writes.
type iperf3 struct {
	// Title is the text of iperf3 --title, which tools display; Fairlead writes
	// the case.
	Title     string           `json:"title,omitempty"`
	Start     iperf3Start      `json:"start"`
	Intervals []iperf3Interval `json:"intervals"`
	End       iperf3End        `json:"end"`
	Error     string           `json:"error,omitempty"`
	// Fairlead has the data for which iperf3 has no fields: the CPU time of the
	// whole machine (iperf3 reports only its own process), proof and validity.
	Fairlead *iperf3Ours `json:"fairlead,omitempty"`
}

type iperf3Start struct {
	Version    string     `json:"version"`
	SystemInfo string     `json:"system_info,omitempty"`
	Test       iperf3Test `json:"test_start"`
}

type iperf3Test struct {
	Protocol string  `json:"protocol"`
	Streams  int     `json:"num_streams"`
	Duration float64 `json:"duration"`
	Reverse  int     `json:"reverse"`
}

type iperf3Interval struct {
	Streams []iperf3Sum `json:"streams"`
	Sum     iperf3Sum   `json:"sum"`
}

type iperf3End struct {
	Streams []iperf3Stream `json:"streams"`
	// Sum is the only sum that older versions write for UDP: the sent bytes, and the
	// receiver's loss.
	Sum          *iperf3Sum `json:"sum,omitempty"`
	Sent         *iperf3Sum `json:"sum_sent,omitempty"`
	Received     *iperf3Sum `json:"sum_received,omitempty"`
	ReceivedBack *iperf3Sum `json:"sum_received_bidir_reverse,omitempty"`
	CPU          iperf3CPU  `json:"cpu_utilization_percent"`
}

// iperf3Stream has sender and receiver for TCP, and udp for UDP.
type iperf3Stream struct {
	Sender   *iperf3Sum `json:"sender,omitempty"`
	Receiver *iperf3Sum `json:"receiver,omitempty"`
	UDP      *iperf3Sum `json:"udp,omitempty"`
}

type iperf3Sum struct {
	Start   float64  `json:"start"`
	End     float64  `json:"end"`
	Seconds float64  `json:"seconds"`
	Bytes   uint64   `json:"bytes"`
	Rate    float64  `json:"bits_per_second"`
	Lost    *float64 `json:"lost_percent,omitempty"`
	Sender  bool     `json:"sender"`
}

type iperf3CPU struct {
	Host   float64 `json:"host_total"`
	Remote float64 `json:"remote_total"`
}

type iperf3Ours struct {
	result.Case
	Round   int                       `json:"round"`
	Half    int                       `json:"half,omitempty"`
	Order   int                       `json:"order"`
	Metrics map[result.Metric]float64 `json:"metrics"`
	Ledger  *result.Ledger            `json:"ledger,omitempty"`
	Proof   *result.Proof             `json:"proof,omitempty"`
	Invalid []string                  `json:"invalid,omitempty"`
	Notes   []string                  `json:"notes,omitempty"`
}

// FromIperf3 reads the output of iperf3 -J and returns one run per document;
// rounds are numbered in their order. It leaves path and client empty for the
// caller to set, unless WriteIperf3 wrote the file, which then contains them.
// Figures are the receiver's. Latency is not read, because iperf3 reports TCP's
// smoothed round-trip time under load.
func FromIperf3(r io.Reader) ([]result.Run, error) {
	var runs []result.Run
	decoder := json.NewDecoder(r)
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		switch {
		case errors.Is(err, io.EOF) && len(runs) > 0:
			return runs, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("import iperf3: the file is empty; expected the output of iperf3 -J")
		case err != nil:
			return nil, fmt.Errorf("import iperf3: not the JSON of iperf3 -J: %w", err)
		}
		run, err := iperf3Run(raw)
		if err != nil {
			return nil, fmt.Errorf("import iperf3: document %d: %w", len(runs)+1, err)
		}
		if run.Round == 0 {
			run.Round = len(runs) + 1
		}
		runs = append(runs, run)
	}
}

func iperf3Run(raw json.RawMessage) (result.Run, error) {
	var doc iperf3
	if err := json.Unmarshal(raw, &doc); err != nil {
		return result.Run{}, fmt.Errorf("not the output of iperf3: %w", err)
	}
	received, loss := doc.received()
	switch {
	case doc.Error != "":
		return result.Run{}, fmt.Errorf("iperf3 itself failed: %s", doc.Error)
	case received == nil || received.Seconds <= 0:
		return result.Run{}, errors.New("no sum_received at the end: the file is incomplete or from another tool")
	}
	if o := doc.Fairlead; o != nil && o.Path != "" {
		return result.Run{Case: o.Case, Round: o.Round, Half: o.Half, Order: o.Order,
			Seconds: received.Seconds, Metrics: o.Metrics,
			Ledger: o.Ledger, Proof: o.Proof, Invalid: o.Invalid, Notes: o.Notes}, nil
	}
	run := result.Run{
		Case:    result.Case{Workload: doc.workload(), Tool: "iperf3"},
		Seconds: received.Seconds,
		Metrics: map[result.Metric]float64{result.Throughput: received.Rate},
		Notes: []string{fmt.Sprintf("iperf3 counts its own processes only: client %.1f %%, server %.1f %% of a CPU",
			doc.End.CPU.Host, doc.End.CPU.Remote)},
		Raw: string(raw),
	}
	if strings.EqualFold(doc.Start.Test.Protocol, "UDP") {
		run.Metrics[result.Loss] = loss
	}
	return run, nil
}

// received returns the received bytes and rate, of both directions together, and the
// lost share.
func (d iperf3) received() (sum *iperf3Sum, loss float64) {
	sum = d.End.Received
	if old := d.End.Sum; sum == nil && old != nil {
		sum = &iperf3Sum{Seconds: old.Seconds, Rate: old.Rate, Lost: old.Lost}
		if old.Lost != nil {
			sum.Rate *= 1 - *old.Lost/100
		}
	}
	if sum != nil && sum.Lost != nil {
		loss = *sum.Lost / 100
	}
	if back := d.End.ReceivedBack; sum != nil && back != nil {
		both := *sum
		both.Rate += back.Rate
		sum = &both
	}
	return sum, loss
}

// workload returns the name of iperf3's test in the suites. A name without a direction
// means from the client to the server.
func (d iperf3) workload() string {
	name := strings.ToLower(d.Start.Test.Protocol) + "-bulk"
	switch {
	case d.End.ReceivedBack != nil:
		return name + "-both"
	case d.Start.Test.Reverse != 0:
		return name + "-down"
	}
	return name
}

// WriteIperf3 writes a bulk run as iperf3's JSON, for tools that read it. CPU
// percentages are those of the generator's two processes, as iperf3 reports them;
// the CPU time of the whole machine is under the key fairlead.
func WriteIperf3(w io.Writer, run result.Run, host result.Host) error {
	rate, ok := run.Metrics[result.Throughput]
	kind := result.Kind(run.Workload)
	if !ok || !strings.HasSuffix(kind, "-bulk") {
		return fmt.Errorf("export %s as iperf3: iperf3 has only bulk transfers; choose a bulk workload", run.Workload)
	}
	doc := iperf3{
		Start: iperf3Start{Version: "fairlead " + host.Fairlead,
			SystemInfo: "Linux " + strings.TrimPrefix(host.Kernel, "Linux "), Test: iperf3Test{
				Protocol: strings.ToUpper(kind[:3]), Streams: 1, Duration: run.Seconds,
			}},
		Title: fmt.Sprintf("%s, %s, %s, round %d", run.Path, run.Client, run.Workload, run.Round),
		Fairlead: &iperf3Ours{Case: run.Case, Round: run.Round, Half: run.Half, Order: run.Order,
			Metrics: run.Metrics, Ledger: run.Ledger, Proof: run.Proof,
			Invalid: run.Invalid, Notes: run.Notes},
	}
	up := !strings.HasSuffix(run.Workload, "-down")
	if !up {
		doc.Start.Test.Reverse = 1
	}
	doc.fill(run, rate, kind == "udp-bulk", up)
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(doc); err != nil {
		return fmt.Errorf("export %s as iperf3: %w", run.Workload, err)
	}
	return nil
}

// fill sets the sums: one interval and one stream that represent all.
func (d *iperf3) fill(run result.Run, rate float64, udp, up bool) {
	received := iperf3Sum{End: run.Seconds, Seconds: run.Seconds, Rate: rate, Sender: up,
		Bytes: uint64(math.Round(rate * run.Seconds / 8))}
	sent := received
	if udp {
		loss := run.Metrics[result.Loss]
		sent.Rate /= max(1-loss, 1e-6)
		sent.Bytes = uint64(math.Round(sent.Rate * run.Seconds / 8))
		percent := loss * 100
		received.Lost = &percent
		d.End.Streams = []iperf3Stream{{UDP: &received}}
	} else {
		d.End.Streams = []iperf3Stream{{Sender: &sent, Receiver: &received}}
	}
	d.End.Sent, d.End.Received = &sent, &received
	d.Intervals = []iperf3Interval{{Streams: []iperf3Sum{received}, Sum: received}}
	if l := run.Ledger; l != nil && l.Wall > 0 {
		d.End.CPU = iperf3CPU{Host: 100 * l.Client / l.Wall, Remote: 100 * l.Server / l.Wall}
	}
}
