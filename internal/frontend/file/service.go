package file

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/frontend/schema"
	"fairlead/internal/model"
	"fairlead/internal/syntax"

	"go.yaml.in/yaml/v3"
)

// declaredService is a service of the host or of the cluster.
type declaredService struct {
	model.VirtualService
	cluster bool
	ingress []string
}

// serviceFields are the fields of a service. spec is its part of the Spec.
func (r *reader) serviceFields(d *declaredService, spec string) []field {
	v := &d.VirtualService
	read := func(word string) error {
		ports, err := syntax.Ports(word)
		v.Ports = append(v.Ports, ports...)
		return err
	}
	known := []field{
		field{name: "address", help: "addresses of the service; with the field virtual, an address is one of the cluster",
			value: r.serviceAddress(&v.Addresses)}.such("192.0.2.10"),
		field{name: "port", help: "ports of the service", value: r.listed(r.parsed(read, func() schema.Schema {
			s := schema.Ports()
			s.Pattern = "^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$"
			return s
		})).writes(func() any { return ports(v.Ports) })}.such(80, "8000-8010"),
		{name: "protocol", help: "protocol, default tcp", value: r.protocol(&v.Proto).writes(func() any {
			if v.Proto == model.TCP {
				return nil
			}
			return v.Proto
		})},
	}
	known = append(known, r.wordFields(syntax.ServiceFields(), v)...)
	return append(known,
		field{name: "check", help: "health check of the real servers: an object, or only its type", value: r.check(v)},
		field{name: "reals", help: "real servers of the service", value: r.reals(v, spec)},
		field{name: "cluster", help: "make the service one of all hosts of the cluster", value: r.flag(
			&d.cluster).writes(nil)},
		field{name: "ingress", help: "with cluster: nodes that accept the service's traffic (default: all)", value: r.texts(
			&d.ingress).writes(func() any { return oneOrAll(d.ingress) })}.such("host1"))
}

func serviceSchema(r *reader) schema.Schema {
	s := objectOf(r.serviceFields(&declaredService{}, ""))
	s.Required = []string{"address", "port"}
	return s
}

func (r *reader) service(key, n *yaml.Node, path string) {
	spec := fmt.Sprintf("services[%d]", len(r.Spec.Services))
	if first, declared := r.earlierService(key.Value); declared {
		r.mistake(key, path, "service %s is declared in %s:%d already: leave one out", key.Value, first.file,
			first.node.Line)
		return
	}
	d := declaredService{VirtualService: model.VirtualService{Name: key.Value, Proto: model.TCP}}
	before := len(r.mistakes)
	r.object(n, path, r.serviceFields(&d, spec))
	v, cluster, ingress := d.VirtualService, d.cluster, d.ingress
	switch {
	case len(r.mistakes) > before:
	case len(v.Addresses) == 0 || len(v.Ports) == 0:
		r.mistake(key, path, "missing an address and a port: write e.g. address: 192.0.2.10 and port: 80")
	case len(ingress) > 0 && !cluster:
		r.mistake(key, path, "ingress: only services of a cluster have it: add cluster: true, or leave it out")
	}
	at := spot{r.file, followed(n), path}
	if at.node.Line == 0 || at.node.Kind != yaml.MappingNode {
		at.node = key
	}
	if cluster {
		r.spots[fmt.Sprintf("clusterServices[%d]", len(r.Spec.ClusterServices))] = at
		r.Spec.ClusterServices = append(r.Spec.ClusterServices, api.ClusterService{VirtualService: v, Ingress: ingress})
		return
	}
	r.spots[spec] = at
	r.Spec.Services = append(r.Spec.Services, v)
}

// earlierService returns where a service is declared, and whether it is.
func (r *reader) earlierService(name string) (at spot, declared bool) {
	for i, o := range r.Spec.Services {
		if o.Name == name {
			return r.spots[fmt.Sprintf("services[%d]", i)], true
		}
	}
	for i, o := range r.Spec.ClusterServices {
		if o.Name == name {
			return r.spots[fmt.Sprintf("clusterServices[%d]", i)], true
		}
	}
	return at, false
}

// wordFields returns the fields that are words.
func (r *reader) wordFields(all []syntax.ServiceField, v *model.VirtualService) []field {
	var known []field
	for _, f := range all {
		known = append(known, field{name: f.Name, help: f.Help, value: r.parsed(
			func(word string) error { return f.Set(v, word) },
			func() schema.Schema { return wordSchema(f) }).writes(func() any { return writtenWord(f, f.Get(*v)) })})
	}
	return known
}

// wordSchema returns the schema of a field by the placeholder of its value.
func wordSchema(f syntax.ServiceField) schema.Schema {
	switch {
	case f.Words != nil:
		return schema.OneOf(f.Words...)
	case f.Value == "":
		return schema.Flag()
	case f.Value == "TIME":
		return schema.Time().Or(syntax.Default)
	case f.Value == "PORT":
		return schema.Number(0, math.MaxUint16)
	case f.Value == "NUMBER", f.Value == "PERCENT":
		return schema.Number(math.MinInt32, math.MaxInt32).Or(syntax.Default)
	}
	return schema.Text()
}

// writtenWord writes a number, true and false without quotes.
func writtenWord(f syntax.ServiceField, text string) any {
	if slices.Contains([]string{"", "NUMBER", "PERCENT", "PORT"}, f.Value) {
		return bare(text)
	}
	return text
}

// check parses a check: an object, or only its type.
func (r *reader) check(v *model.VirtualService) value {
	return value{read: func(n *yaml.Node, path string) {
		if n = followed(n); n.Kind == yaml.ScalarNode {
			r.word(n, path, func(word string) error { return syntax.CheckFields()[0].Set(v, word) })
			return
		}
		before := len(r.mistakes)
		r.object(n, path, r.checkFields(v))
		if err := syntax.TypedCheck(v.Check); err != nil && len(r.mistakes) == before {
			r.mistake(n, path, "%v", err)
		}
	}, schema: func() schema.Schema {
		return schema.Any(schema.OneOf(syntax.Checks...), objectOf(r.checkFields(&model.VirtualService{})))
	}, write: func() any { return writtenObject(r.checkFields(v)) }}
}

func (r *reader) checkFields(v *model.VirtualService) []field {
	return append(r.wordFields(syntax.CheckFields(), v), field{name: "command", help: "exec: absolute path of the " +
		"program, and its arguments", value: r.texts(&v.Check.Command)}.such([]string{"/usr/local/bin/check", "-v"}))
}

// reals parses real servers. Each is a word as for --real, or an object.
func (r *reader) reals(v *model.VirtualService, spec string) value {
	return r.listed(value{read: func(n *yaml.Node, path string) {
		real := model.RealServer{Weight: 1}
		if n.Kind == yaml.MappingNode {
			r.real(n, path, &real)
		} else {
			r.word(n, path, func(word string) (err error) { real, err = syntax.Real(word); return err })
		}
		r.spots[fmt.Sprintf("%s.reals[%d]", spec, len(v.Reals))] = spot{r.file, n, path}
		v.Reals = append(v.Reals, real)
	}, schema: func() schema.Schema {
		return schema.Any(schema.Text().About("ADDRESS[:PORT], or a selector of sandboxes",
			"10.0.0.3:8080", "10.0.0.3:8080,weight=2", "label=app=web,port=80"),
			objectOf(r.realFields(&model.RealServer{})))
	}}).writes(func() any { return each(v.Reals, r.writtenReal) })
}

func (r *reader) realFields(real *model.RealServer) []field {
	weight := func(word string) (err error) {
		if real.Weight, err = strconv.Atoi(word); err != nil {
			return fmt.Errorf("weight %q: want 0 to %d", word, model.MaxWeight)
		}
		return nil
	}
	state := func(word string) error {
		if word != string(model.RealDraining) && word != string(model.RealDown) {
			return errors.New("want draining or down, or leave it out")
		}
		real.State = model.RealState(word)
		return nil
	}
	return []field{
		field{name: "address", help: "address of the real server", value: r.address(
			&real.Address)}.such("10.0.0.3"),
		field{name: "label", help: "select sandboxes with this label, KEY or KEY=VALUE",
			value: r.text(&real.Select.Label)}.such("app=web"),
		field{name: "name", help: "select sandboxes whose name matches this pattern",
			value: r.text(&real.Select.Name)}.such("web-*"),
		field{name: "network", help: "select sandboxes on this network",
			value: r.text(&real.Select.Network)}.such("web"),
		{name: "port", help: "port of the real server (default: the service's)", value: number(r, 16, &real.Port)},
		{name: "weight", help: "share of new connections, relative to the other real servers; default 1, 0 for none",
			value: r.parsed(weight, func() schema.Schema { return schema.Number(0, model.MaxWeight) }).writes(
				func() any {
					if real.Weight == 1 {
						return nil
					}
					return bare(strconv.Itoa(real.Weight)) // also 0
				})},
		{name: "state", help: "state that the user has set (default: in use)", value: r.parsed(state,
			chosen(model.RealDraining, model.RealDown)).writes(stored(&real.State))},
	}
}

func (r *reader) real(n *yaml.Node, path string, real *model.RealServer) {
	before := len(r.mistakes)
	r.object(n, path, r.realFields(real))
	if len(r.mistakes) == before && real.Address.IsValid() == !real.Select.IsZero() {
		r.mistake(n, path, "want an address or a selector (label, name, network), and not both")
	}
}

// writtenReal writes a real server as one word if it has only an address and a port,
// else as an object.
func (r *reader) writtenReal(real model.RealServer) any {
	if real.Address.IsValid() && real.Weight == 1 && real.State == "" {
		return real.String()
	}
	return writtenObject(r.realFields(&real))
}

func writtenService(d declaredService) (o ordered) {
	if d.cluster {
		o = ordered{{"cluster", true}}
	}
	return append(o, writtenObject(new(reader).serviceFields(&d, ""))...)
}

// oneOrAll returns the element of a list with one element, else the list.
func oneOrAll(all []string) any {
	if len(all) == 1 {
		return all[0]
	}
	return all
}

func ports(all []model.PortRange) any {
	words := strs(all)
	if len(words) == 1 && !strings.Contains(words[0], "-") {
		return bare(words[0])
	}
	return oneOrAll(words)
}
