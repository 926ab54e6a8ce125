package tool

import (
	"bytes"
	"strconv"
	"strings"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/suite"
)

func iperf3Server(suite.Workload) []string {
	return []string{"iperf3", "--server", "--one-off", "--forceflush", "--port", strconv.Itoa(iperf3Port)}
}

func iperf3Client(w suite.Workload, target string, seconds int) []string {
	if w.Spec.Workload != load.TCPBulk && w.Spec.Workload != load.UDPBulk {
		return nil
	}
	args := []string{"iperf3", "--client", target, "--port", strconv.Itoa(iperf3Port), "--json",
		"--time", strconv.Itoa(seconds), "--parallel", strconv.Itoa(max(1, w.Spec.Streams))}
	if w.Spec.Workload == load.UDPBulk {
		size := load.MaxDatagram4
		if strings.Contains(target, ":") {
			size = load.MaxDatagram6
		}
		args = append(args, "--udp", "--bandwidth", "0", "--length", strconv.Itoa(size))
	} else if w.Spec.Rate > 0 {
		args = append(args, "--bandwidth", strconv.Itoa(int(w.Spec.Rate)/max(1, w.Spec.Streams)))
	}
	switch w.Spec.Direction {
	case load.Down:
		args = append(args, "--reverse")
	case load.Both:
		args = append(args, "--bidir")
	}
	return args
}

func readIperf3(_ suite.Workload, out []byte) (map[result.Metric]float64, error) {
	runs, err := FromIperf3(bytes.NewReader(out))
	if err != nil {
		return nil, err
	}
	return runs[0].Metrics, nil
}
