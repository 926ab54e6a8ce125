// Autobahn runs Autobahn's cases for WebSocket through the gateway, with the client and the
// server of kosoku, and compares each verdict with that without a gateway. The other side is a
// library that passes all cases. It fails if a verdict differs or a case does not pass.
//
// It is not a part of `make test`, because it takes many minutes: see `make autobahn`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"fairlead/internal/gateway"
	"fairlead/internal/gateway/entries"
	model "fairlead/internal/model/gateway"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: autobahn KOSOKU [CASES...], for example autobahn kosoku '1.*' 9.1.1")
		os.Exit(2)
	}
	if err := run(suite{kosoku: os.Args[1], cases: os.Args[2:]}); err != nil {
		fmt.Fprintln(os.Stderr, "autobahn:", err)
		os.Exit(1)
	}
}

// suite runs kosoku.
type suite struct {
	kosoku string
	// cases are names and patterns; none means all.
	cases []string
}

// verdict is that of a case: of the messages and of the end.
type verdict struct {
	Behavior      string `json:"behavior"`
	BehaviorClose string `json:"behaviorClose"`
}

// passed is the rule of Autobahn's reports.
func (v verdict) passed() bool {
	good := []string{"OK", "NON-STRICT", "INFORMATIONAL"}
	return slices.Contains(good, v.Behavior) && slices.Contains(good, v.BehaviorClose)
}

// side tests one side with kosoku as the other, over the address of a server.
type side struct {
	name string
	// test returns the verdicts without a gateway and through it.
	test func(s suite, through string) (map[string]verdict, error)
}

func run(s suite) error {
	var failed error
	for _, side := range []side{{"servers", testServers}, {"clients", testClients}} {
		direct, err := side.test(s, "")
		if err != nil {
			return fmt.Errorf("%s without a gateway: %w", side.name, err)
		}
		failed = errors.Join(failed, report(side.name+" without a gateway", direct, direct))
		for _, scheme := range []string{"ws", "wss"} {
			got, err := side.test(s, scheme)
			if err != nil {
				return fmt.Errorf("%s over %s: %w", side.name, scheme, err)
			}
			failed = errors.Join(failed, report(side.name+" through the gateway, "+scheme, got, direct))
		}
	}
	return failed
}

// report prints the number of cases that pass and those that do not or that differ, for which it
// returns an error.
func report(name string, got, direct map[string]verdict) error {
	passed := 0
	for _, id := range slices.Sorted(maps.Keys(direct)) {
		if v := got[id]; !v.passed() || v != direct[id] {
			fmt.Printf("%s: case %s: %q, %q; without a gateway %q, %q\n", name, id,
				v.Behavior, v.BehaviorClose, direct[id].Behavior, direct[id].BehaviorClose)
			continue
		}
		passed++
	}
	fmt.Printf("%s: %d of %d cases pass\n", name, passed, len(direct))
	if passed == 0 || passed < len(direct) {
		return fmt.Errorf("%s: %d of %d cases failed", name, len(direct)-passed, len(direct))
	}
	return nil
}

// args returns the arguments for kosoku, with a directory for its report.
func (s suite) args(mode, address, reports string) []string {
	args := []string{"--mode", mode, "--outdir", reports, "--parallelism", "4"}
	for _, id := range s.cases {
		args = append(args, "--include", id)
	}
	return append(args, address)
}

// verdicts reads kosoku's report.
func verdicts(reports string) (map[string]verdict, error) {
	text, err := os.ReadFile(filepath.Join(reports, "index.json"))
	if err != nil {
		return nil, err
	}
	var agents map[string]map[string]verdict
	if err := json.Unmarshal(text, &agents); err != nil {
		return nil, err
	}
	all := map[string]verdict{}
	for _, cases := range agents {
		maps.Copy(all, cases)
	}
	return all, nil
}

// testServers runs the cases with kosoku as the client.
func testServers(s suite, through string) (map[string]verdict, error) {
	server, err := serveEcho()
	if err != nil {
		return nil, err
	}
	defer server.Close()
	address := server.Addr().String()
	if through != "" {
		g, err := startGateway(address)
		if err != nil {
			return nil, err
		}
		defer g.stop()
		address = g.address
	}
	if through == "wss" {
		secure, err := addTLS(address)
		if err != nil {
			return nil, err
		}
		defer secure.Close()
		address = secure.Addr().String()
	}
	reports, err := os.MkdirTemp("", "autobahn-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(reports)
	out, failed := exec.Command(s.kosoku, s.args("fuzzingclient", "ws://"+address, reports)...).CombinedOutput()
	all, err := verdicts(reports)
	if err != nil {
		return nil, errors.Join(err, failed, errors.New(string(out)))
	}
	return all, nil // a case that fails is in the report
}

// testClients runs the cases with kosoku as the server.
func testClients(s suite, through string) (map[string]verdict, error) {
	reports, err := os.MkdirTemp("", "autobahn-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(reports)
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(s.kosoku, s.args("fuzzingserver", address, reports)...)
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := said.Read(make([]byte, 256)); err != nil { // it says that it listens
		return nil, errors.Join(err, cmd.Wait())
	}
	url := "ws://" + address
	if through != "" {
		g, err := startGateway(address)
		if err != nil {
			return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
		}
		defer g.stop()
		url = through + "://" + g.address
	}
	if err := answerCases(url); err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	_ = cmd.Wait() // a case that fails is in the report
	return verdicts(reports)
}

// freeAddress returns an address at which nothing listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// running is a gateway before one server.
type running struct {
	address string
	stop    func()
}

func startGateway(server string) (*running, error) {
	static := model.Static{EntryPoints: []model.EntryPoint{{Name: "web", Address: "127.0.0.1:0"}},
		Default: []string{"web"}}
	g, err := gateway.New(static, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	sockets, err := entries.Listen(static.EntryPoints)
	if err != nil {
		return nil, err
	}
	const all = "PathPrefix(`/`)"
	g.Apply(&model.Config{HTTP: model.HTTP{
		Routers: map[string]*model.Router{"r@file": {Rule: all, Service: "s@file"},
			"tls@file": {Rule: all, Service: "s@file", TLS: &model.RouterTLS{}}},
		Services: map[string]*model.Service{"s@file": {LoadBalancer: &model.LoadBalancer{
			Servers: []model.Server{{URL: "http://" + server}}}}}}}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(ctx, sockets) }()
	return &running{address: sockets["web"].TCP.Addr().String(), stop: func() {
		cancel()
		<-ended
	}}, nil
}
