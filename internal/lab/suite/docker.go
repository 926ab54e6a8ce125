package suite

import (
	"strconv"
	"strings"
	"time"

	"fairlead/internal/lab/result"
	"fairlead/internal/model"
)

// dockerPaths returns the paths with the workload in a container of a Docker
// engine: on Docker's networks, and on those of Fairlead's plugin.
func dockerPaths() []Path {
	through := func(name, about string, d model.Driver, via model.Via) Path {
		return Path{Name: "docker:fairlead-" + name, About: about, Driver: d, Via: via, Direct: via == "",
			Tracked: via == model.ViaNAT, Peer: DockerFairlead}
	}
	return []Path{
		{Name: "docker:host", About: "a container on Docker's host network: the baseline of the suite docker",
			Driver: model.DriverHost, Peer: Docker},
		{Name: "docker:bridge", About: "a container on a Docker bridge at its own address", Driver: model.DriverBridge,
			Peer: Docker, Direct: true},
		{Name: "docker:publish", About: "a container's port published by Docker: NAT and docker-proxy",
			Driver: model.DriverBridge, Tracked: true, Peer: Docker},
		{Name: "docker:publish-network", About: "docker:publish on a network created with `docker network create`",
			Driver: model.DriverBridge, Tracked: true, Peer: Docker, OwnNetwork: true},
		{Name: "docker:publish-noproxy", About: "docker:publish with --userland-proxy=false: NAT alone",
			Driver: model.DriverBridge, Tracked: true, Peer: Docker, NoProxy: true},
		{Name: "docker:macvlan",
			About:  "a container on a Docker macvlan network, at an address of the wire's own subnet",
			Driver: model.DriverMacvlan, Peer: Docker, Direct: true},
		through("ebpf", "a container's port published via ebpf on a bridge network of Fairlead's Docker plugin",
			model.DriverBridge, model.ViaEBPF),
		through("nat", "docker:fairlead-ebpf with --via nat", model.DriverBridge, model.ViaNAT),
		through("proxy", "docker:fairlead-ebpf with --via proxy", model.DriverBridge, model.ViaProxy),
		through("bridge", "a container on a bridge network of Fairlead's Docker plugin, at its own address",
			model.DriverBridge, ""),
		through("routed", "a container on a routed network of Fairlead's Docker plugin, at its own address",
			model.DriverRouted, ""),
		through("macvlan",
			"a container on a macvlan network of Fairlead's Docker plugin, at an address of the wire's own subnet",
			model.DriverMacvlan, ""),
	}
}

// docker returns the suite with `docker run` and with traffic.
func docker() Suite {
	s := Suite{
		Name:     "docker",
		Question: "How much do Docker's networks cost, and Fairlead's under Docker, from `docker run` to traffic?",
		Baseline: "docker:host",
		Clients:  []result.Client{result.Remote, result.Local},
		Workloads: []Workload{
			bulk, rr, crr, pps, runTCP, runUDP,
		},
		Rounds: 10, Duration: time.Second, Warmup: 200 * time.Millisecond,
	}
	for _, p := range dockerPaths() {
		s.Paths = append(s.Paths, p.Name)
	}
	return s
}

// dockerStart returns the suite about the number of published ports alone.
func dockerStart() Suite {
	s := Suite{
		Name:      "docker-start",
		Question:  "How much time does `docker run` take with many published ports, and how much memory?",
		Baseline:  "docker:publish",
		Clients:   []result.Client{result.Remote},
		Workloads: []Workload{runTCP, runUDP},
		Rounds:    5, Duration: time.Second,
	}
	for _, name := range []string{"docker:publish", "docker:publish-network", "docker:publish-noproxy",
		"docker:fairlead-ebpf", "docker:fairlead-nat", "docker:fairlead-proxy"} {
		for _, ports := range []int{1, 50, 200, 1000} {
			s.Paths = append(s.Paths, withPorts(name, ports))
		}
	}
	return s
}

// Starts of a container with the path's number of published ports, until it
// answers on the last of them.
var (
	runTCP = Workload{Name: result.DockerRun + "-tcp", Start: model.TCP}
	runUDP = Workload{Name: result.DockerRun + "-udp", Start: model.UDP}
)

// Supports reports whether the workload can be measured on the path. A container's
// start needs an engine, and is the only workload for paths with many ports. A
// failover needs a path that can have several real servers. Datagrams need a path
// that carries UDP. Requests over HTTP need a gateway, or a path to the workload's own
// address, and a gateway carries nothing else.
func (p Path) Supports(w Workload) bool {
	switch {
	case p.Gateways > 0 || w.Visits != nil:
		return p.Gateways > 0 && p.supportsVisits(w)
	case p.Virtual || w.Event.OfHolder():
		return p.Virtual && w.Event.OfHolder()
	case w.Start != "":
		return p.Peer.InDocker
	case w.Event != "":
		return p.failsOver()
	case p.Passive:
		return false // it differs in failovers only
	case w.Spec.Workload.HTTP():
		if p.Peer.Gateway {
			return w.Changes == 0 || p.Peer.Changes
		}
		return p.Peer.Name == "" && p.Via == "" && p.Plane == ""
	case p.Peer.Gateway:
		return false
	}
	return p.Ports == 1 && !(p.Peer.TCPOnly && isUDP(w.Spec.Workload))
}

// portsMark separates a path's name from the number of ports that a container
// publishes when it starts: docker:publish-ports200.
const portsMark = "-ports"

// maxPorts is the greatest number of ports of a path.
const maxPorts = 10_000

// withPorts returns the name of the path with that number of ports.
func withPorts(path string, ports int) string {
	if ports == 1 {
		return path
	}
	return path + portsMark + strconv.Itoa(ports)
}

// cutPorts splits a path's name into its name and number of ports. ok is false if
// withPorts does not return such a name.
func cutPorts(name string) (path string, ports int, ok bool) {
	path, digits, marked := strings.Cut(name, portsMark)
	if !marked {
		return name, 1, true
	}
	ports, err := strconv.Atoi(digits)
	return path, ports, err == nil && ports > 1 && ports <= maxPorts && withPorts(path, ports) == name
}
