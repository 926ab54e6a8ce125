package foreign_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"fairlead/internal/child"
	"fairlead/test/daemons"
	"fairlead/test/place"
	"fairlead/test/process"
)

// command is something that an administrator does.
type command struct {
	name string
	do   func(*host)
	// reads is true if the command changes nothing.
	reads bool
}

// cli returns a command of fairlead's. In its line, BOX is the sandbox, DIR/ the directory of the
// files, and TOKEN the token of the cluster.
func cli(line string) command {
	return command{name: line, do: func(h *host) { h.Helper(); h.run(line) }}
}

// look returns a command that changes nothing.
func look(line string) command {
	c := cli(line)
	c.reads = true
	return c
}

// looks returns several of them.
func looks(lines ...string) (all []command) {
	for _, line := range lines {
		all = append(all, look(line))
	}
	return all
}

// finds returns a command that reads, and whose exit status is not 0 if it has found something: then its output
// has one of the texts.
func finds(line string, texts ...string) command {
	return command{name: line, reads: true, do: func(h *host) {
		h.Helper()
		if said, err := h.daemon.Try(h.words(line)...); err != nil &&
			!slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(said, s) }) {
			h.Errorf("fairlead %s: %v\n%s", line, err, said)
		}
	}}
}

// words returns the arguments of a line.
func (h *host) words(line string) []string {
	box := process.Seen(h.box.Path())
	return strings.Fields(strings.NewReplacer("BOX", box, "DIR/", h.dir+"/", "TOKEN", h.token).Replace(line))
}

// run runs a command, and returns what it prints.
func (h *host) run(line string) string {
	h.Helper()
	said, err := h.daemon.Try(h.words(line)...)
	if err != nil {
		h.Errorf("fairlead %s: %v\n%s", line, err, said)
	}
	return said
}

// output is what a process prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) has(word string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Contains(o.text.String(), word)
}

// interrupted runs a command that ends with a signal. It repeats each until the command prints the word, and then
// interrupts it.
func interrupted(line, word string, each ...string) command {
	return command{name: line, do: func(h *host) {
		h.Helper()
		cmd := child.Self(daemons.CLIRole)
		cmd.Args = append(cmd.Args, h.words(line)...)
		cmd.Env = append(cmd.Env, "FAIRLEAD_SOCKET="+h.daemon.Socket)
		said := new(output)
		cmd.Stdout, cmd.Stderr = said, said
		p, err := child.Start(context.WithoutCancel(h.Context()), cmd, child.Place{Netns: h.ns.File()})
		if err != nil {
			h.Fatal(err)
		}
		for end := time.Now().Add(place.Timeout); !said.has(word); {
			for _, other := range each {
				if h.Failed() {
					_ = p.Kill()
					return
				}
				h.run(other)
			}
			select {
			case <-p.Done():
				h.Fatalf("fairlead %s has ended: %v\n%s", line, p.Wait(), said.text.String())
			case <-time.After(10 * time.Millisecond):
			}
			if time.Now().After(end) {
				_ = p.Kill()
				h.Fatalf("fairlead %s never prints %q:\n%s", line, word, said.text.String())
			}
		}
		_ = p.Cmd.Process.Signal(syscall.SIGINT)
		<-p.Done()
		if code := p.Cmd.ProcessState.ExitCode(); code != 0 && code != 128+int(syscall.SIGINT) {
			h.Errorf("fairlead %s, interrupted: exit status %d\n%s", line, code, said.text.String())
		}
	}}
}

// files are those that commands read.
var files = map[string]string{
	"declared.yaml": `
name: declared
networks:
  wet: {driver: bridge, subnet: [172.30.0.128/25, "fd00:30:0:1::/64"]}
attachments:
  - {sandbox: BOX, network: wet, name: wet, publish: [{published: 8071, target: 81, via: nat}]}
services:
  wet: {address: 192.0.2.81, port: 80, plane: nft, check: tcp, reals: ["name=wet:80"]}
`,
	"gateway.yaml": `
name: gateway
gateway:
  entryPoints:
    web: {address: ":8070"}
  http:
    routers:
      wet: {rule: "PathPrefix(` + "`/`" + `)", service: wet}
    services:
      wet: {loadBalancer: {servers: [{url: "http://192.0.2.81:80"}]}}
`,
	"http.yaml": `
http:
  routers:
    wet: {rule: "PathPrefix(` + "`/`" + `)", service: wet}
  services:
    wet: {loadBalancer: {servers: [{url: "http://192.0.2.81:80"}]}}
`,
	"ipvsadm": "-A -t 192.0.2.82:80 -s rr\n-a -t 192.0.2.82:80 -r 172.30.0.9:80 -m -w 1\n",
}

// writeFiles writes the files.
func (h *host) writeFiles() {
	h.Helper()
	with := strings.NewReplacer("BOX", process.Seen(h.box.Path()))
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(h.dir, name), []byte(with.Replace(text)), 0o600); err != nil {
			h.Fatal(err)
		}
	}
}

// doctor accepts findings, also problems and that foreign rules hide one, but no failure.
var doctor = finds("doctor", "problems on this host", "this host drops its own requests")

var (
	restart = command{name: "restart", do: func(h *host) { h.Helper(); h.daemon.Stop(); h.daemon.Start() }}
	kill    = command{name: "kill", do: func(h *host) { h.Helper(); h.daemon.Kill(); h.daemon.Start() }}
	stop    = command{name: "stop", do: func(h *host) { h.Helper(); h.daemon.Stop() }}
)

// commands returns a life of Fairlead on a host: all commands that read or change a host outside of a cluster.
func commands(driver, via, plane string) (all []command) {
	add := func(some ...command) { all = append(all, some...) }
	add(command{name: "files", reads: true, do: (*host).writeFiles})
	add(looks("version", "paths", "choose --explain", "lab list", "inspect BOX", "exec BOX -- true")...)
	add(cli("network create net --driver "+driver+" --subnet 172.30.0.0/25 --subnet fd00:30::/64"),
		cli("attach net BOX --name web"),
		cli("publish web 8080:80 --via "+via),
		cli("service add site 192.0.2.80:80 --plane "+plane+" --real name=web:80"))
	add(looks("ls", "network ls", "service ls", "service show site", "ports", "stats", "events", "get",
		"explain 198.51.100.1 198.51.100.2:8080", "explain 198.51.100.1 to 192.0.2.80:80",
		"service import ipvsadm DIR/ipvsadm")...)
	add(doctor, restart,
		cli("publish web 9000-9010:8000-8010/udp --via "+via),
		cli("service set site --real name=web:81"),
		interrupted("service watch site", "172.30.0.2:80", "service drain site 172.30.0.2:80",
			"service enable site 172.30.0.2:80"),
		kill, cli("run -p 8072:72 -- true"))
	add(declared()...)
	add(cli("unpublish web 8080"), cli("service rm site"), cli("detach web"), cli("network rm net"), stop,
		command{name: "restore", do: (*host).restore})
	return all
}

// declared returns the commands about files and the gateway.
func declared() (all []command) {
	all = append(all, finds("plan -f DIR/declared.yaml", "created"), cli("apply -f DIR/declared.yaml"),
		look("plan -f DIR/declared.yaml"), cli("apply -f DIR/gateway.yaml"))
	all = append(all, looks("gateway routers", "gateway services", "gateway middlewares", "gateway certificates",
		"gateway check DIR/http.yaml", "explain http://shop.test:8070/", "get", "ls", "ports")...)
	return append(all, restart, kill,
		interrupted("gateway traefik -- --entrypoints.web.address=:8073 --providers.file.filename=DIR/http.yaml", "serving"),
		cli("destroy -f DIR/gateway.yaml"), cli("destroy -f DIR/declared.yaml"))
}

// restore runs the command that replaces damaged files, while no daemon runs.
func (h *host) restore() {
	h.Helper()
	for _, flag := range []string{"--dry-run", ""} {
		line := "restore --state-dir " + h.daemon.State + " --run-dir " + h.daemon.Order.Run + " " + flag
		// Nothing is stored any more.
		said, err := h.daemon.Try(strings.Fields(line)...)
		if err != nil && !strings.Contains(said, "no daemon has stored") {
			h.Errorf("fairlead %s: %v\n%s", line, err, said)
		}
	}
}
