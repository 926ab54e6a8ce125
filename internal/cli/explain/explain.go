// Package explain has the commands that explain and diagnose: what the host has, and
// why.
package explain

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/escape"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/explain/flow/probe"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/process"
	"fairlead/internal/sandbox"

	"github.com/spf13/cobra"
)

// NewExplain returns the command `fairlead explain`.
func NewExplain(a *command.App) *cobra.Command {
	x := &explainer{Remote: command.Remote{App: a}}
	x.api.Remote = &x.Remote
	c := &cobra.Command{
		Use:   "explain FROM to [TO]:PORT[/tcp|/udp] | [FROM to] URL",
		Short: "Show a flow's path hop by hop, or what the gateway does with a request",
		Long: "Show each hop of the first packet of a flow: the route, the rule or map element, the bridge\n" +
			"port, the eBPF program, the proxy, and the socket at the end with its process and container;\n" +
			"or what drops the packet. The rules of all programs are read, also those of Docker and of\n" +
			"the firewall. No daemon is needed.\n\n" +
			"FROM is an address of the LAN, host, localhost, an attachment, or a sandbox as for\n" +
			"`fairlead inspect`. TO is an address or such a name, or empty for the host itself.\n" +
			"With an arrow, quote the flow as one word: 'web -> db:5432'.\n\n" +
			"For a virtual service, the hop shows the data plane that takes the packet and the real\n" +
			"servers that can get it. If the service uses hashing and you give the client's port\n" +
			"(10.0.0.7:40000 to …), it shows which real server gets it.\n\n" +
			"For a URL, the gateway is asked: the entry point, certificate, router, middlewares and\n" +
			"servers of the request are shown, or the nearest routers and what of their rules does not\n" +
			"match. With FROM, the path to the entry point is shown first.\n\n" +
			"If the flow leaves this host for a sandbox of another node of its cluster, the daemon asks\n" +
			"that node, and what it reports is shown below.",
		Example: "  fairlead explain 10.0.0.7 to :8080\n" +
			"  fairlead explain 'web -> db:5432'\n" +
			"  fairlead explain localhost to :5353/udp\n" +
			"  fairlead explain web to 192.0.2.9:443 -o json\n" +
			"  fairlead explain 10.0.0.7:40000 to 192.0.2.80:80\n" +
			"  fairlead explain https://shop.example.org/cart",
		Args: command.Arguments(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if isRequest(args) {
				return x.explainURL(c, args)
			}
			f, err := flow.Parse(args)
			if err != nil {
				return command.Usage(err)
			}
			if os.Geteuid() != 0 {
				return command.Usage(errors.New("root is needed to read network namespaces: run as root, e.g. with sudo"))
			}
			e, err := x.explain(c.Context(), f)
			if err != nil {
				return err
			}
			if x.Output == "json" {
				return errors.Join(x.JSON(e), disagreement(e))
			}
			if slices.ContainsFunc(e.Hops, func(h flow.Hop) bool {
				return command.NamesDocker(h.Where + " " +
					h.What)
			}) {
				explanation(command.AskDocker(c.Context(), []model.Origin{model.FromDocker}), &e)
			}
			if err := x.print(e); err != nil {
				return err
			}
			return disagreement(e)
		},
	}
	x.Flags(c)
	x.api.Flag(c, "gateway")
	c.Flags().StringVar(&x.method, "method", "GET", "method of the request to a URL")
	c.Flags().StringVar(&x.probe, "probe", "", "send one packet, and show at which hops it was seen; `ADDRESS` "+
		"allows\nsending to that address although it is not of this host")
	c.Flags().Lookup("probe").NoOptDefVal = probeThisHost
	c.Flags().DurationVar(&x.timeout, "timeout", probeTimeout, "how long --probe waits for a reply")
	return c
}

// probeThisHost is the value of --probe without an address.
const probeThisHost = "here"

// shortID is the number of characters that identify a container.
const shortID = 12

// The default and the maximum of --timeout.
const (
	probeTimeout    = 2 * time.Second
	maxProbeTimeout = time.Minute
)

// explainer explains a flow.
type explainer struct {
	command.Remote
	probe   string
	timeout time.Duration
	// api and method are for requests to a URL.
	api    command.GatewayAPI
	method string
}

// probing returns the options of a probe, and whether to send one.
func (x *explainer) probing() (opt probe.Options, wanted bool, err error) {
	opt.Timeout = x.timeout
	if x.timeout <= 0 || x.timeout > maxProbeTimeout {
		return opt, false, fmt.Errorf("timeout %s: want a duration above 0, up to %s", x.timeout, maxProbeTimeout)
	}
	if x.probe == "" || x.probe == probeThisHost {
		return opt, x.probe != "", nil
	}
	if opt.Allow, err = netip.ParseAddr(x.probe); err != nil {
		return opt, false, fmt.Errorf("probe %q: want the IP address to send a packet to", x.probe)
	}
	return opt, true, nil
}

// explain reads this host's state, asks the daemon for its publishes and
// services, and explains the flow.
func (x *explainer) explain(ctx context.Context, f flow.Flow) (e flow.Explanation, err error) {
	send, wanted, err := x.probing()
	if err != nil {
		return e, command.Usage(err)
	}
	host, err := kernel.Open("", kernel.Options{Pins: process.Pins(process.Beside(x.Socket, admin.Socket))})
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	// Without an answer from the engine, containers have no names.
	containers, _ := sandbox.New().Containers(ctx)
	attachments, err := admin.NewClient(x.Socket).Attachments(ctx)
	if err != nil && !command.Gone(err) {
		return e, err
	}
	balanced, err := services(&x.Remote, ctx)
	if err != nil {
		return e, err
	}
	world, err := hostview.New(host, viewOptions(containers, attachments, balanced))
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, world.Close()) }()
	e, err = flow.Explain(world.Facts(), f)
	if err == nil && e.Outcome == flow.Leaves {
		err = x.further(ctx, &e)
	}
	if err != nil || !wanted {
		return e, err
	}
	return e, probe.Send(ctx, world, &e, send)
}

// viewOptions returns what the daemon and the engines know for the view of this host.
func viewOptions(containers []sandbox.Listed, attachments []api.View, balanced []flow.Known) hostview.Options {
	opt := hostview.Options{Sandboxes: map[string]string{}, Containers: map[string]string{}, Services: balanced,
		Finder: sandbox.New()}
	for _, c := range containers {
		opt.Containers[c.ID[:min(len(c.ID), shortID)]] = c.Name
	}
	for _, v := range attachments {
		opt.Sandboxes[v.Name] = v.Sandbox
		opt.Published = append(opt.Published, published(v)...)
	}
	return opt
}

// further adds what the node of the cluster that has the destination reports. There is nothing to add
// without a daemon, a cluster, or such a node.
func (x *explainer) further(ctx context.Context, e *flow.Explanation) error {
	last := e.Hops[len(e.Hops)-1]
	part, err := admin.ExplainFlow.Do(ctx, admin.NewClient(x.Socket), api.FlowQuestion{Proto: e.Proto,
		Source: last.Source, Destination: last.Destination})
	if command.Gone(err) || api.CodeOf(err) == api.NotFound {
		return nil
	}
	if err == nil {
		e.Further = &part
	}
	return err
}

// published returns the publishes of an attachment in the form of package flow.
func published(v api.View) []flow.Published {
	var all []flow.Published
	for _, p := range v.Publishes {
		all = append(all, flow.Published{Publish: p.Publish, Driver: v.Driver, Addresses: v.AllAddresses(),
			Away: v.NoDefault})
	}
	return all
}

// print prints one paragraph per hop: its place and what happens there, then the
// rule or program that causes it.
func (x *explainer) print(e flow.Explanation) error {
	lines := []string{fmt.Sprintf("%s/%s", endpoints(e.Source, e.Destination), e.Proto), ""}
	width := 0
	for _, h := range e.Hops {
		width = max(width, utf8.RuneCountInString(place(h)))
	}
	for _, h := range e.Hops {
		what := h.What
		if h.Seen != "" {
			what += " [" + h.Seen + "]"
		}
		lines = append(lines, fmt.Sprintf("%2d  %-*s  %s", h.Number, width, place(h), what))
		program := ""
		if h.Program != "" {
			program = "eBPF program " + h.Program
		}
		for _, more := range append(candidates(h.Balance), h.By, program, h.Why) {
			if more != "" {
				lines = append(lines, fmt.Sprintf("%*s%s", width+8, "", more))
			}
		}
	}
	lines = append(lines, "", sentence(e, e.Verdict))
	lines = append(lines, remarks(e)...)
	return x.Out.Lines(append(lines, furtherLines(e.Further)...)...)
}

// furtherLines returns the lines of the part on another node.
func furtherLines(p *api.FlowPart) []string {
	switch {
	case p == nil:
		return nil
	case p.Problem != "":
		return []string{"", "The path on node " + p.Node + " is not known: " + p.Problem}
	}
	lines := []string{"", "Node " + p.Node + " reports:", ""}
	for i, s := range p.Steps {
		lines = append(lines, fmt.Sprintf("%2d  %s  %s", i+1, escape.Line(strings.TrimSpace(s.Where+" "+s.Link)), s.What))
		program := ""
		if s.Program != "" {
			program = "eBPF program " + s.Program
		}
		for _, more := range []string{s.By, program, s.Why} {
			if more != "" {
				lines = append(lines, "        "+more)
			}
		}
	}
	lines = append(lines, "", p.Node+": "+p.Verdict)
	for _, c := range p.Caveats {
		lines = append(lines, "Not certain: "+c)
	}
	return lines
}

// disagreement returns an error if the probe's result differs from the
// explanation.
func disagreement(e flow.Explanation) error {
	if e.Probe == nil || e.Probe.Agrees || e.Probe.Result == probe.NotSent {
		return nil
	}
	return fmt.Errorf("the probe was %s, but the explanation says %s: something on the packet's path is unknown to "+
		"explain", e.Probe.Result, e.Outcome)
}

func place(h flow.Hop) string { return escape.Line(strings.TrimSpace(h.Where + " " + h.Link)) }

// remarks returns the lines below the verdict.
func remarks(e flow.Explanation) []string {
	var all []string
	if e.Uncertain && e.Probe == nil {
		all = append(all, "Some rules contain parts that explain does not understand: use --probe to be certain.")
	}
	for _, c := range e.Caveats {
		all = append(all, "Not certain: "+sentence(e, c))
	}
	for _, n := range e.Notes {
		all = append(all, "Not examined: "+sentence(e, n))
	}
	if p := e.Probe; p != nil {
		all = append(all, fmt.Sprintf("Probe: %s: %s.", p.Sent, p.Result))
		if p.Result == probe.NotSent && !p.Agrees {
			all = append(all, "No packet of this flow was seen.")
		}
		if p.Dropped != "" {
			all = append(all, "It was dropped in "+p.Dropped+".")
		}
		if p.Agrees {
			all = append(all, "The probe agrees.")
		}
	}
	return all
}

func endpoints(from netip.Addr, to netip.AddrPort) string {
	if !from.IsValid() {
		return "to " + to.String()
	}
	return fmt.Sprintf("%s -> %s", from, to)
}

// sentence returns s with a capital at its beginning, unless s begins with the
// name of a hop, and with a full stop at its end.
func sentence(e flow.Explanation, s string) string {
	if s == "" {
		return s
	}
	first, _, _ := strings.Cut(s, " ")
	s = strings.TrimSuffix(s, ".") + "."
	if slices.ContainsFunc(e.Hops, func(h flow.Hop) bool {
		return first == h.Link || first == h.Where &&
			h.Where != "host"
	}) {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
