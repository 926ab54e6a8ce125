package suite

import (
	"strconv"
	"strings"
	"time"

	"fairlead/internal/lab/result"
	"fairlead/internal/model"
)

// dockerPaths have the workload in a container of a Docker engine: on Docker's
// own networks, and on those of Fairlead's plugin.
func dockerPaths() []Path {
	through := func(name, about string, d model.Driver, via model.Via) Path {
		return Path{Name: "docker:fairlead-" + name, About: about, Driver: d, Via: via, Direct: via == "", Tracked: via == model.ViaNAT, Peer: DockerFairlead}
	}
	return []Path{
		{Name: "docker:host", About: "a container on Docker's host network: the baseline of the suite docker", Driver: model.DriverHost, Peer: Docker},
		{Name: "docker:bridge", About: "a container on a Docker bridge at its own address", Driver: model.DriverBridge, Peer: Docker, Direct: true},
		{Name: "docker:publish", About: "a container's port published by Docker: NAT, and docker-proxy beside it", Driver: model.DriverBridge, Tracked: true, Peer: Docker},
		{Name: "docker:publish-network", About: "the same from a network that `docker network create` has made", Driver: model.DriverBridge, Tracked: true, Peer: Docker, OwnNetwork: true},
		{Name: "docker:publish-noproxy", About: "docker:publish with --userland-proxy=false: NAT alone", Driver: model.DriverBridge, Tracked: true, Peer: Docker, NoProxy: true},
		{Name: "docker:macvlan", About: "a container on a Docker macvlan network, at an address of the wire's own subnet", Driver: model.DriverMacvlan, Peer: Docker, Direct: true},
		through("ebpf", "a container's port published via ebpf on a Fairlead network of Docker", model.DriverBridge, model.ViaEBPF),
		through("nat", "the same via nat", model.DriverBridge, model.ViaNAT),
		through("proxy", "the same via proxy", model.DriverBridge, model.ViaProxy),
		through("bridge", "a container on a Fairlead bridge of Docker at its own address", model.DriverBridge, ""),
		through("routed", "a container on a Fairlead network of Docker without a bridge, at its own address", model.DriverRouted, ""),
		through("macvlan", "a container on a Fairlead macvlan network of Docker, at an address of the wire's own subnet", model.DriverMacvlan, ""),
	}
}

// docker is the whole table: `docker run` and the traffic that follows.
func docker() Suite {
	s := Suite{
		Name:     "docker",
		Question: "What do Docker's networks cost and Fairlead's under Docker, from `docker run` to traffic?",
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

// dockerStart is about the number of ports alone.
func dockerStart() Suite {
	s := Suite{
		Name:      "docker-start",
		Question:  "How long does `docker run` take with many published ports, and how much memory?",
		Baseline:  "docker:publish",
		Clients:   []result.Client{result.Remote},
		Workloads: []Workload{runTCP, runUDP},
		Rounds:    5, Duration: time.Second,
	}
	for _, name := range []string{"docker:publish", "docker:publish-network", "docker:publish-noproxy", "docker:fairlead-ebpf", "docker:fairlead-nat", "docker:fairlead-proxy"} {
		for _, ports := range []int{1, 50, 200, 1000} {
			s.Paths = append(s.Paths, withPorts(name, ports))
		}
	}
	return s
}

// The starts of a container with the path's number of published ports, until
// it answers on the last of them.
var (
	runTCP = Workload{Name: result.DockerRun + "-tcp", Start: model.TCP}
	runUDP = Workload{Name: result.DockerRun + "-udp", Start: model.UDP}
)

// InDocker says that the workload is in a container of a Docker engine.
func (p Path) InDocker() bool { return p.Peer == Docker || p.Peer == DockerFairlead }

// Takes reports whether the workload makes sense through the path: a start
// takes an engine that starts containers, and where many ports are published
// it is what is asked for; what becomes of a real server, a path that can have
// several; datagrams, one that carries them.
func (p Path) Takes(w Workload) bool {
	switch {
	case w.Start != "":
		return p.InDocker()
	case w.Event != "":
		return p.failsOver()
	case p.Passive:
		return false // it differs in nothing else
	}
	return p.Ports == 1 && (p.takesDatagrams() || !isUDP(w.Spec.Workload))
}

// portsMark parts a path's name from the number of ports that a container
// publishes when it starts: docker:publish-ports200.
const portsMark = "-ports"

// maxPorts is how many ports there is room for.
const maxPorts = 10_000

// withPorts names the path with so many ports.
func withPorts(path string, ports int) string {
	if ports == 1 {
		return path
	}
	return path + portsMark + strconv.Itoa(ports)
}

// cutPorts takes the number of ports off a path's name. It fails if the name
// is not one that withPorts gives.
func cutPorts(name string) (path string, ports int, ok bool) {
	path, digits, marked := strings.Cut(name, portsMark)
	if !marked {
		return name, 1, true
	}
	ports, err := strconv.Atoi(digits)
	return path, ports, err == nil && ports > 1 && ports <= maxPorts && withPorts(path, ports) == name
}
