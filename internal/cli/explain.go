package cli

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

	"fairlead/internal/daemon"
	"fairlead/internal/escape"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/explain/flow/probe"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/service"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"

	"github.com/spf13/cobra"
)

func newExplain(a *app) *cobra.Command {
	x := &explainer{remote: remote{app: a}}
	c := &cobra.Command{
		Use:   "explain FROM to [TO]:PORT[/tcp|/udp]",
		Short: "Show which way a flow takes, hop by hop, and what sends it there",
		Long: "Show each hop that the first packet of a flow takes: the route, the rule or map\n" +
			"element, the bridge port, the eBPF program, the proxy, and the socket at the end, with\n" +
			"its process and container; or what drops it. It reads everybody's rules, Docker's and\n" +
			"the firewall's too, and works without a daemon.\n\n" +
			"FROM is an address of the LAN, host, localhost, an attachment, or a sandbox as for\n" +
			"`fairlead inspect`. TO is an address, such a name, or nothing for the host itself.\n" +
			"With an arrow the flow is one quoted word: 'web -> db:5432'.\n\n" +
			"For a virtual service it tells which data plane takes the packet and which real\n" +
			"servers it may go to. With the client's port (10.0.0.7:40000 to …) it says of a hashed\n" +
			"service which one it is.",
		Example: "  fairlead explain 10.0.0.7 to :8080\n" +
			"  fairlead explain 'web -> db:5432'\n" +
			"  fairlead explain localhost to :5353/udp\n" +
			"  fairlead explain web to 192.0.2.9:443 -o json\n" +
			"  fairlead explain 10.0.0.7:40000 to 192.0.2.80:80",
		Args: arguments(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := flow.Parse(args)
			if err != nil {
				return usage(err)
			}
			if os.Geteuid() != 0 {
				return usage(errors.New("root is needed to look into network namespaces: run as root, e.g. with sudo"))
			}
			e, err := x.explain(c.Context(), f)
			if err != nil {
				return err
			}
			if x.output == "json" {
				return errors.Join(x.json(e), disagreement(e))
			}
			if slices.ContainsFunc(e.Hops, func(h flow.Hop) bool { return dockerName.MatchString(h.Where + " " + h.What) }) {
				askDocker(c.Context(), []model.Origin{model.FromDocker}).explanation(&e)
			}
			if err := x.print(e); err != nil {
				return err
			}
			return disagreement(e)
		},
	}
	x.flags(c)
	c.Flags().StringVar(&x.probe, "probe", "", "send a packet, and say at which hops it was seen; to an address that is not this host's only if it is given here")
	c.Flags().Lookup("probe").NoOptDefVal = probeThisHost
	c.Flags().DurationVar(&x.patience, "timeout", probePatience, "how long --probe waits for an answer")
	return c
}

// probeThisHost is a --probe without an address.
const probeThisHost = "here"

// shortID is how many characters of a container's id tell it.
const shortID = 12

// The bounds of --timeout.
const (
	probePatience = 2 * time.Second
	maxPatience   = time.Minute
)

// explainer explains a flow.
type explainer struct {
	remote
	probe    string
	patience time.Duration
}

// probing returns what --probe asks for.
func (x *explainer) probing() (opt probe.Options, wanted bool, err error) {
	opt.Patience = x.patience
	if x.patience <= 0 || x.patience > maxPatience {
		return opt, false, fmt.Errorf("patience %s: want a time up to %s", x.patience, maxPatience)
	}
	if x.probe == "" || x.probe == probeThisHost {
		return opt, x.probe != "", nil
	}
	if opt.Abroad, err = netip.ParseAddr(x.probe); err != nil {
		return opt, false, fmt.Errorf("probe %q: want the address that may be sent a packet", x.probe)
	}
	return opt, true, nil
}

// explain looks at this host, and asks the daemon what it has published.
func (x *explainer) explain(ctx context.Context, f flow.Flow) (e flow.Explanation, err error) {
	send, wanted, err := x.probing()
	if err != nil {
		return e, usage(err)
	}
	host, err := kernel.Open("", kernel.Options{Pins: service.Pins(service.Beside(x.socket, admin.Socket))})
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	opt := hostview.Options{Sandboxes: map[string]string{}, Containers: map[string]string{}, Finder: sandbox.New()}
	// An engine that does not answer only leaves its containers nameless.
	containers, _ := opt.Finder.Containers(ctx)
	for _, c := range containers {
		opt.Containers[c.ID[:min(len(c.ID), shortID)]] = c.Name
	}
	attachments, err := admin.NewClient(x.socket).Attachments(ctx)
	if err != nil && !gone(err) {
		return e, err
	}
	for _, v := range attachments {
		opt.Sandboxes[v.Name] = v.Sandbox
		opt.Published = append(opt.Published, published(v)...)
	}
	if opt.Services, err = x.services(ctx); err != nil {
		return e, err
	}
	world, err := hostview.New(host, opt)
	if err != nil {
		return e, err
	}
	defer func() { err = errors.Join(err, world.Close()) }()
	e, err = flow.Explain(world, f)
	if err != nil || !wanted {
		return e, err
	}
	return e, probe.Send(ctx, world, &e, send)
}

// published are the ports of an attachment, as explanations know them.
func published(v daemon.View) []flow.Published {
	var all []flow.Published
	for _, p := range v.Publishes {
		all = append(all, flow.Published{Publish: p.Publish, Driver: v.Driver, Addresses: v.AllAddresses()})
	}
	return all
}

// print prints a hop a paragraph: where and what, and below by what and why.
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
	return x.out.lines(append(lines, remarks(e)...)...)
}

// disagreement is an error if a packet was sent and ended otherwise than was
// explained.
func disagreement(e flow.Explanation) error {
	if e.Probe == nil || e.Probe.Agrees || e.Probe.Result == probe.NotSent {
		return nil
	}
	return fmt.Errorf("the probe was %s, and the explanation says %s: something decides otherwise than is known here", e.Probe.Result, e.Outcome)
}

func place(h flow.Hop) string { return escape.Line(strings.TrimSpace(h.Where + " " + h.Link)) }

// remarks are what is to be said below the verdict.
func remarks(e flow.Explanation) []string {
	var all []string
	if e.Uncertain && e.Probe == nil {
		all = append(all, "Some rules hold more than is understood here: --probe tells for certain.")
	}
	for _, c := range e.Caveats {
		all = append(all, "Not certain: "+sentence(e, c))
	}
	for _, n := range e.Notes {
		all = append(all, "Not looked at: "+sentence(e, n))
	}
	if p := e.Probe; p != nil {
		all = append(all, fmt.Sprintf("Probe: %s: %s.", p.Sent, p.Result))
		if p.Result == probe.NotSent && !p.Agrees {
			all = append(all, "None was seen to go this way.")
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

// sentence begins with a capital, unless it begins with the name of a hop, and
// ends with a full stop.
func sentence(e flow.Explanation, s string) string {
	if s == "" {
		return s
	}
	first, _, _ := strings.Cut(s, " ")
	s = strings.TrimSuffix(s, ".") + "."
	if slices.ContainsFunc(e.Hops, func(h flow.Hop) bool { return first == h.Link || first == h.Where && h.Where != "host" }) {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
