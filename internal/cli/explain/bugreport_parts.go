package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/daemon/stored"
	"fairlead/internal/explain/redact"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/file"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/process"
)

// The limits of a part.
const (
	partTimeout = 30 * time.Second
	partBytes   = 4 << 20
)

// bugreport collects the parts of a bug report.
type bugreport struct {
	*command.Remote
	secrets redact.Secrets
	// state is the desired state; stateErr is why it is not known.
	state    admin.State
	stateErr error
	// running reports whether the daemon answers.
	running bool
	files   []written
}

// part is a file of a bug report.
type part struct {
	name, what string
	// write writes what it finds before an error.
	write func(ctx context.Context, to io.Writer) error
}

// parts returns the parts in the order of the archive.
func (b *bugreport) parts() []part {
	self := func(name, what string, args ...string) part { return part{name, what, b.self(nil, args...)} }
	all := []part{
		self("version.json", "version, features and stored formats", "version", "-o", "json"),
		{"host.txt", "kernel, distribution, memory, settings, versions of tools", hostFacts},
		{"kernel.json", "what the kernel lacks", kernelFeatures},
		{"desired.json", "desired state", b.desired},
		{"plan.txt", "what `fairlead apply` of the desired state would do", b.plan},
		{"ours.txt", "Fairlead's objects in the kernel (links, routes, nftables, eBPF), as commands", b.ours},
		{"nft.txt", "Fairlead's nftables tables", nftTables},
		{"bpf.txt", "Fairlead's pinned eBPF programs", b.pins},
		self("doctor.json", "findings of the doctor, also about drift", "doctor", "-o", "json"),
		self("events.json", "last events", "events", "-o", "json"),
		{"log.txt", "last lines of the daemon's log", b.log},
		self("ports.json", "reachable ports", "ports", "-o", "json"),
		self("attachments.json", "attachments", "ls", "-o", "json"),
		self("networks.json", "networks", "network", "ls", "-o", "json"),
		self("services.json", "virtual services", "service", "ls", "-o", "json"),
		self("stats.json", "counters", "stats", "-o", "json"),
		self("cluster.json", "status of the cluster", "cluster", "status", "-o", "json"),
		self("addresses.json", "virtual addresses of the cluster", "cluster", "address", "ls", "-o", "json"),
	}
	for _, of := range []string{"routers", "services", "middlewares", "certificates"} {
		all = append(all, self("gateway-"+of+".json", of+" of the gateway", "gateway", of, "-o", "json"))
	}
	return all
}

// learn reads the desired state and the secrets of this host. What cannot be read has no secrets here.
func (b *bugreport) learn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	b.secrets.Environment(os.Environ())
	if pid := process.Daemon(); pid != 0 {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil {
			b.secrets.Environment(strings.Split(string(text), "\x00"))
		}
	}
	opt := process.Beside(b.Socket, admin.Socket)
	memberships, _ := filepath.Glob(filepath.Join(opt.State, "cluster", "*.json*")) // fails only for a bad pattern
	for _, name := range memberships {
		if text, err := os.ReadFile(name); err == nil {
			b.secrets.JSON(text)
		}
	}
	b.stateErr = b.Read(ctx, func(client *admin.Client) (err error) {
		b.state, err = admin.ReadState.Do(ctx, client)
		b.running = err == nil
		return err
	}, func(w model.Desired) error {
		b.state.Spec, b.state.Notes = stored.Spec(w)
		return nil
	})
	// plan.txt needs the secrets, so they are hidden in a copy.
	if hidden, err := clone(b.state.Spec); err == nil {
		b.secrets.Value(&hidden)
	}
}

// clone returns a deep copy.
func clone(s api.Spec) (c api.Spec, err error) {
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	return c, err
}

// run runs a part within its limits, and returns what it has written without secrets, and what went wrong.
func (b *bugreport) run(ctx context.Context, p part) (content []byte, problem string) {
	limited, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	to := &bounded{most: partBytes}
	err := p.write(limited, to)
	if limited.Err() != nil && ctx.Err() == nil {
		err = errors.Join(err, fmt.Errorf("it has taken longer than %s", partTimeout))
	}
	if to.cut {
		err = errors.Join(err, fmt.Errorf("it is larger than %d bytes: the end is missing", partBytes))
	}
	if err != nil {
		problem = string(b.secrets.Hide([]byte(err.Error())))
	}
	return b.secrets.Hide(to.content()), problem
}

// bounded keeps the first bytes that are written to it.
type bounded struct {
	bytes.Buffer
	most int
	cut  bool
}

// Write implements io.Writer. It drops what is too much.
func (w *bounded) Write(text []byte) (int, error) {
	if room := w.most - w.Len(); len(text) > room {
		w.cut = true
		w.Buffer.Write(text[:room])
	} else {
		w.Buffer.Write(text)
	}
	return len(text), nil
}

// content returns what was written, in whole lines: a part of a secret would not be found.
func (w *bounded) content() []byte {
	if all := w.Bytes(); w.cut {
		return all[:bytes.LastIndexByte(all, '\n')+1]
	}
	return w.Bytes()
}

// self returns a part that runs another command of this program. The command's notes and its failure are the error.
func (b *bugreport) self(stdin func() io.Reader, args ...string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, to io.Writer) error {
		own, err := os.Executable()
		if err != nil {
			return err
		}
		if stdin == nil {
			stdin = func() io.Reader { return nil }
		}
		cmd := exec.CommandContext(ctx, own, args...)
		cmd.Env = append(os.Environ(), command.SocketVariable+"="+b.Socket)
		return output(cmd, stdin(), to)
	}
}

// output runs a command, and returns its notes and its failure as an error.
func output(cmd *exec.Cmd, stdin io.Reader, to io.Writer) error {
	notes := &bounded{most: 64 << 10}
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = stdin, to, notes, time.Second
	err := cmd.Run()
	if text := strings.TrimSpace(string(notes.content())); text != "" {
		return errors.Join(errors.New(text), err)
	}
	return err
}

// desired writes the desired state.
func (b *bugreport) desired(_ context.Context, to io.Writer) error {
	if b.stateErr != nil {
		return b.stateErr
	}
	hidden, err := clone(b.state.Spec)
	if err != nil {
		return err
	}
	b.secrets.Value(&hidden)
	err = file.WriteJSON(to, hidden)
	if len(b.state.Notes) > 0 {
		err = errors.Join(err, errors.New(strings.Join(b.state.Notes, "\n")))
	}
	return err
}

// plan writes what an apply of the desired state would do.
func (b *bugreport) plan(ctx context.Context, to io.Writer) error {
	if !b.running {
		return errors.New("no daemon runs, and a plan would start one")
	}
	var declared bytes.Buffer
	if err := file.Write(&declared, b.state.Spec); err != nil {
		return err
	}
	err := b.self(func() io.Reader { return &declared }, "plan", "-f", "-")(ctx, to)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil // there is something to do
	}
	return err
}

// ours writes the commands that would create Fairlead's objects that the kernel has.
func (b *bugreport) ours(_ context.Context, to io.Writer) error {
	host, err := kernel.Open("", kernel.Options{Pins: process.Pins(process.Beside(b.Socket, admin.Socket))})
	if err != nil {
		return err
	}
	have, err := host.Observe(nil, nil)
	for _, op := range plan.Diff(nil, have) {
		for _, line := range op.Commands() {
			fmt.Fprintln(to, line)
		}
	}
	return errors.Join(err, host.Close())
}

// pins writes the names of the pinned eBPF programs.
func (b *bugreport) pins(_ context.Context, to io.Writer) error {
	return filepath.WalkDir(process.Pins(process.Beside(b.Socket, admin.Socket)),
		func(path string, entry os.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				fmt.Fprintln(to, path)
			}
			return err
		})
}

// kernelFeatures writes what the kernel lacks.
func kernelFeatures(_ context.Context, to io.Writer) error {
	facts, err := kernel.Probe()
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Kernel  string                  `json:"kernel"`
		Missing map[plan.Feature]string `json:"missing"`
	}{facts.Kernel, facts.Missing})
}

// nftTables writes the tables that have Fairlead's mark in their names.
func nftTables(ctx context.Context, to io.Writer) error {
	var tables bytes.Buffer
	if err := output(exec.CommandContext(ctx, "nft", "list", "tables"), nil, &tables); err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(tables.String()) {
		words := strings.Fields(line) // table FAMILY NAME
		if len(words) == 3 && strings.HasPrefix(words[2], plan.Mark) {
			list := exec.CommandContext(ctx, "nft", "-a", "list", "table", words[1], words[2])
			errs = append(errs, output(list, nil, to))
		}
	}
	return errors.Join(errs...)
}

// log writes the last lines of the daemon's log: of the journal, and of a daemon in the background.
func (b *bugreport) log(ctx context.Context, to io.Writer) error {
	args := []string{"--no-pager", "--output=short-iso", "--lines=5000"}
	for _, unit := range process.Units {
		args = append(args, "--unit="+unit)
	}
	journal := output(exec.CommandContext(ctx, "journalctl", args...), nil, to)
	name := process.LogFile(process.Beside(b.Socket, admin.Socket))
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return journal
	}
	if err != nil {
		return errors.Join(journal, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > partBytes/2 {
		_, _ = f.Seek(-partBytes/2, io.SeekEnd) // else the begin is read
	}
	fmt.Fprintf(to, "# %s\n", name)
	_, err = io.Copy(to, f)
	return err
}

// hostFacts writes what a maintainer asks about the host.
func hostFacts(ctx context.Context, to io.Writer) error {
	fmt.Fprintf(to, "%s\n%d CPUs\n", machine(), runtime.NumCPU())
	var errs []error
	for _, name := range []string{"/etc/os-release", "/proc/loadavg", "/proc/sys/net/ipv4/ip_forward",
		"/proc/sys/net/ipv6/conf/all/forwarding", "/proc/sys/net/ipv4/conf/all/rp_filter",
		"/proc/sys/net/netfilter/nf_conntrack_max", "/proc/sys/net/netfilter/nf_conntrack_count",
		"/proc/sys/net/bridge/bridge-nf-call-iptables", "/proc/sys/kernel/unprivileged_bpf_disabled",
		"/proc/sys/net/core/bpf_jit_enable", "/proc/meminfo", "/proc/modules"} {
		text, err := os.ReadFile(name)
		if err == nil {
			fmt.Fprintf(to, "\n# %s\n%s", name, text)
		} else if !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, tool := range []string{"nft", "iptables", "systemctl", "docker", "containerd"} {
		if _, err := exec.LookPath(tool); err != nil {
			continue
		}
		fmt.Fprintf(to, "\n# %s --version\n", tool)
		errs = append(errs, output(exec.CommandContext(ctx, tool, "--version"), nil, to))
	}
	return errors.Join(errs...)
}
