// Package tool has the external generators that can be driven over a path: one
// file per tool, and the list of them.
package tool

import (
	"fmt"
	"slices"

	"fairlead/internal/lab/program"
	"fairlead/internal/lab/result"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// Tool is an external generator.
type Tool struct {
	Name string
	// Package is the Debian package with the tool.
	Package string
	// Server and Client return the command lines; Client returns nil if the tool
	// does not support the workload. Times are whole seconds, because the tools
	// accept no others.
	Server func(w suite.Workload) []string
	Client func(w suite.Workload, target string, seconds int) []string
	// Ready is what the server prints when it listens. Silent is the TCP port of a
	// server that prints nothing.
	Ready  string
	Silent int
	// Files, if not nil, returns what the server reads from its descriptors from 3 on.
	Files func(f result.Family) ([]string, error)
	// Read returns the metrics from the client's output.
	Read func(w suite.Workload, out []byte) (map[result.Metric]float64, error)
}

// The ports of the tools; qperf needs a second one for data.
const (
	iperf3Port    = rig.LoadPort + 1
	sockperfPort  = rig.LoadPort + 2
	qperfPort     = rig.LoadPort + 3
	qperfDataPort = rig.LoadPort + 4
)

// Tools returns every tool.
func Tools() []Tool {
	return []Tool{
		{Name: "iperf3", Package: "iperf3", Server: iperf3Server, Client: iperf3Client, Ready: "Server listening",
			Read: readIperf3},
		{Name: "qperf", Package: "qperf", Server: qperfServer, Client: qperfClient, Silent: qperfPort, Read: readQperf},
		{Name: "sockperf", Package: "sockperf", Server: sockperfServer, Client: sockperfClient,
			Ready: "using recvfrom", Read: readSockperf},
		{Name: "wrk", Package: "wrk", Server: nginxServer, Client: wrkClient, Silent: rig.WebPort, Files: nginxFiles,
			Read: readWrk},
		{Name: "h2load", Package: "nghttp2-client", Server: nginxServer, Client: h2loadClient,
			Silent: rig.SecureWebPort, Files: nginxFiles, Read: readH2load},
	}
}

// Names lists the tools.
func Names() []string {
	var names []string
	for _, t := range Tools() {
		names = append(names, t.Name)
	}
	return names
}

// Missing returns an error if the tool of that name, which must exist, or the
// server that it needs is not installed.
func Missing(name string) error {
	t := find(name)
	needed := map[string]string{"nginx": "nginx-light", name: t.Package}
	for _, command := range []string{name, t.Server(suite.Workload{})[0]} {
		if _, err := program.Find(command); err != nil {
			return fmt.Errorf("%s is not installed: install Debian's package %s", command, needed[command])
		}
	}
	return nil
}

// IPv6 reports whether the laboratory drives the tool of that name over IPv6.
func IPv6(name string) bool { return name != "sockperf" }

// For returns the tool of that name, which must exist. ok is false if it does not
// support the workload.
func For(name string, w suite.Workload) (t Tool, ok bool) {
	t = find(name)
	return t, w.Spec.Background == 0 && t.Client(w, "", 1) != nil
}

func find(name string) Tool {
	all := Tools()
	return all[slices.IndexFunc(all, func(t Tool) bool { return t.Name == name })]
}
