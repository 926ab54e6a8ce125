package importer

import (
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead/internal/model"
)

// rule is a line of ipvsadm: its options with their values. An option without a value
// has the value "".
type rule struct {
	line    int
	options map[string]string
}

// long maps the long forms of options of ipvsadm(8) to their short forms.
var long = map[string]string{
	"--add-service": "-A", "--add-server": "-a", "--tcp-service": "-t", "--udp-service": "-u", "--fwmark-service": "-f",
	"--scheduler": "-s", "--persistent": "-p", "--netmask": "-M", "--real-server": "-r", "--masquerading": "-m",
	"--gatewaying": "-g",
	"--ipip":       "-i", "--weight": "-w", "--u-threshold": "-x", "--l-threshold": "-y", "--ops": "-o", "-O": "-o",
	"--sched-flags": "-b", "--ipv6": "-6",
}

// valued are the options with a value. The value of -p is optional.
var valued = []string{"-t", "-u", "-f", "-s", "-M", "-r", "-w", "-x", "-y", "-b", "--pe", "--sctp-service",
	"--tun-type", "--tun-port"}

// plain are the options without a value, or with an optional one.
var plain = []string{"-A", "-a", "-p", "-m", "-g", "-i", "-o", "-6", "--tun-csum", "--tun-remcsum", "--tun-nocsum"}

// ofService and ofServer are the options of lines with -A and with -a, without the
// options for the service's address, which are ofBoth.
var (
	ofService = []string{"-A", "-s", "-p", "-M", "-o", "-b", "--pe", "-6"}
	ofServer  = []string{"-a", "-r", "-w", "-m", "-g", "-i", "-x", "-y", "--tun-type", "--tun-port", "--tun-csum",
		"--tun-remcsum", "--tun-nocsum"}
	ofBoth = []string{"-t", "-u", "-f", "--sctp-service"}
)

// IPVSAdm imports the output of `ipvsadm -S -n` (ipvsadm-save(8)). It also accepts
// commands as people type them: lines can begin with ipvsadm or sudo ipvsadm.
func IPVSAdm(text []byte) Imported {
	var all Imported
	at := map[string]int{}
	lines := map[string]int{}
	servers := map[string]int{} // lines of real servers, by service
	for n, line := range linesOf(text) {
		words := separate(typed(strings.Fields(line)))
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		r, ok := all.rule(n+1, words)
		if !ok {
			continue
		}
		key, v, ok := all.frontend(r)
		if !ok {
			continue
		}
		_, adds := r.options["-A"]
		i, known := at[key]
		switch {
		case adds && known:
			all.report(r.line, "%s is declared twice: the first one is used", v.Name)
		case adds:
			at[key], lines[v.Name] = len(all.Services), r.line
			all.options(r, &v)
			all.Services = append(all.Services, v)
		case !known:
			all.report(r.line, "real server %s is not imported: its service is missing", r.options["-r"])
		default:
			servers[v.Name]++
			all.real(r, &all.Services[i])
		}
	}
	all.Services = slices.DeleteFunc(all.Services, func(v model.VirtualService) bool {
		empty := len(v.Reals) == 0 && servers[v.Name] > 0
		if empty {
			all.report(lines[v.Name], "%s is not imported: none of its real servers could be imported", v.Name)
		}
		return empty
	})
	return all.done(lines)
}

// typed removes the command's name from the words of a line.
func typed(words []string) []string {
	if len(words) > 0 && words[0] == "sudo" {
		words = words[1:]
	}
	if len(words) > 0 && path.Base(words[0]) == "ipvsadm" {
		words = words[1:]
	}
	return words
}

// separate splits words with several short options, as in -At. An option with a value ends
// the word, which may contain the value: -w3.
func separate(words []string) []string {
	var all []string
	for _, word := range words {
		all = append(all, shortOptions(word)...)
	}
	return all
}

// shortOptions returns the short options of a word, or the word if it has none or has one that
// is unknown.
func shortOptions(word string) []string {
	if len(word) < 3 || word[0] != '-' || word[1] == '-' {
		return []string{word}
	}
	var all []string
	for i := 1; i < len(word); i++ {
		switch option := "-" + word[i:i+1]; {
		case slices.Contains(valued, option) || option == "-p":
			return append(all, "-"+word[i:])
		case slices.Contains(plain, option) || long[option] != "":
			all = append(all, option)
		default:
			return []string{word}
		}
	}
	return all
}

// rule parses the words of a line, and reports those that it does not know.
func (i *Imported) rule(line int, words []string) (rule, bool) {
	r := rule{line, map[string]string{}}
	var unknown []string
	for j := 0; j < len(words); j++ {
		option, value, glued := strings.Cut(words[j], "=")
		if short, known := long[option]; known {
			option = short
		} else if len(option) > 2 && option[1] != '-' && (slices.Contains(valued, option[:2]) || option[:2] == "-p") {
			option, value, glued = words[j][:2], words[j][2:], true // -w3
		}
		switch {
		case slices.Contains(valued, option):
			if !glued && j+1 < len(words) {
				j++
				value = words[j]
			}
		case option == "-p":
			if !glued && j+1 < len(words) && !strings.HasPrefix(words[j+1], "-") {
				j++
				value = words[j]
			}
		case !slices.Contains(plain, option) || glued:
			unknown = append(unknown, words[j])
			continue
		}
		if _, twice := r.options[option]; twice {
			unknown = append(unknown, strings.TrimSpace(option+" "+value))
			continue
		}
		r.options[option] = value
	}
	_, service := r.options["-A"]
	_, server := r.options["-a"]
	if service == server {
		i.report(line, "%s: not imported: want lines with -A or -a, as `ipvsadm -S -n` writes them",
			strings.Join(words, " "))
		return r, false
	}
	i.reportUnknown(r, unknown, service)
	return r, true
}

// reportUnknown reports the unknown words of a line, and the options that belong to the
// other kind of line.
func (i *Imported) reportUnknown(r rule, unknown []string, service bool) {
	takes := ofServer
	if service {
		takes = ofService
	}
	for _, option := range slices.Sorted(maps.Keys(r.options)) {
		if !slices.Contains(takes, option) && !slices.Contains(ofBoth, option) {
			unknown = append(unknown, strings.TrimSpace(option+" "+r.options[option]))
		}
	}
	if len(unknown) > 0 {
		i.report(r.line, "%s: not imported", strings.Join(unknown, " "))
	}
}

// frontend returns the service of a rule, without its options.
func (i *Imported) frontend(r rule) (key string, v model.VirtualService, ok bool) {
	for option, proto := range map[string]model.Proto{"-t": model.TCP, "-u": model.UDP} {
		text, is := r.options[option]
		if !is {
			continue
		}
		at, err := netip.ParseAddrPort(text)
		switch {
		case err != nil:
			i.report(r.line, "%s: want an address and a port: use the output of `ipvsadm -S -n`", text)
		case at.Port() == 0:
			i.report(r.line, "%s means all ports: name the ports of the service", text)
		default:
			return option + at.String(), virtual(proto, at), true
		}
		return "", v, false
	}
	if mark, is := r.options["-f"]; is {
		i.report(r.line, "firewall mark %s: not imported: a service needs addresses and ports: name those that have "+
			"the mark", mark)
		return "", v, false
	}
	i.report(r.line, "not imported: its protocol is neither tcp (-t) nor udp (-u)")
	return "", v, false
}

func (i *Imported) options(r rule, v *model.VirtualService) {
	v.Scheduler = model.WeightedLeastConnection // ipvsadm's default
	if name := r.options["-s"]; name != "" {
		v.Scheduler = i.schedule(r.line, name)
	}
	if text, is := r.options["-p"]; is {
		v.Persistence = 300 * time.Second // ipvsadm's default
		if t, ok := seconds(text); ok && t > 0 {
			v.Persistence = t
		} else if text != "" {
			i.report(r.line, "-p %s: want seconds: %s is used", text, v.Persistence)
		}
	}
	for option, what := range map[string]string{"-M": "persistence by networks of clients",
		"-o": "one-packet scheduling", "-b": "flags of the scheduler", "--pe": "a persistence engine"} {
		if value, is := r.options[option]; is {
			i.report(r.line, "%s: not imported: Fairlead does not support %s", strings.TrimSpace(option+" "+value),
				what)
		}
	}
}

// real imports a real server into its service.
func (i *Imported) real(r rule, v *model.VirtualService) {
	at, err := netip.ParseAddrPort(r.options["-r"])
	if addr, bad := netip.ParseAddr(strings.Trim(r.options["-r"], "[]")); bad == nil {
		at, err = netip.AddrPortFrom(addr, v.Ports[0].First), nil // the default is the service's port, as in ipvsadm
	}
	if err != nil {
		i.report(r.line, "real server %s: want an address and a port: use the output of `ipvsadm -S -n`",
			r.options["-r"])
		return
	}
	real := model.RealServer{Address: at.Addr(), Port: at.Port(), Weight: 1}
	if text, is := r.options["-w"]; is {
		if real.Weight, err = strconv.Atoi(text); err != nil {
			i.report(r.line, "weight %s: want a number: 1 is used", text)
			real.Weight = 1
		}
	}
	for _, option := range []string{"-x", "-y"} {
		if value, is := r.options[option]; is && value != "0" {
			i.report(r.line, "%s %s of real server %s: not imported: Fairlead does not limit connections", option,
				value, real)
		}
	}
	by, err := r.forwarding()
	if err != nil {
		i.report(r.line, "real server %s is not imported: %v", real, err)
		return
	}
	i.add(r.line, v, real, by)
}

// forwarding returns how packets are forwarded to the real server of a rule.
func (r rule) forwarding() (forwarding, error) {
	if _, is := r.options["-m"]; is {
		return forwarding{forward: model.ForwardNAT}, nil
	}
	if _, is := r.options["-i"]; !is {
		return forwarding{forward: model.ForwardDirect}, nil // ipvsadm's default
	}
	sum := ""
	for _, option := range []string{"csum", "remcsum"} {
		if _, is := r.options["--tun-"+option]; is {
			sum = option
		}
	}
	return wrapped(r.options["--tun-type"], r.options["--tun-port"], sum)
}
