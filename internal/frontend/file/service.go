package file

import (
	"errors"
	"fmt"
	"strconv"

	"fairlead/internal/api"
	"fairlead/internal/model"
	"fairlead/internal/syntax"

	"go.yaml.in/yaml/v3"
)

func (r *reader) service(key, n *yaml.Node, path string) {
	spec := fmt.Sprintf("services[%d]", len(r.Spec.Services))
	if first, declared := r.declaredService(key.Value); declared {
		r.mistake(key, path, "service %s is declared in %s:%d already: leave one out", key.Value, first.file,
			first.node.Line)
		return
	}
	v, cluster := model.VirtualService{Name: key.Value, Proto: model.TCP}, false
	var ingress []string
	before := len(r.mistakes)
	known := []field{
		{"address", r.serviceAddress(&v.Addresses)},
		{"port", r.words(func(word string) error {
			ports, err := syntax.Ports(word)
			v.Ports = append(v.Ports, ports...)
			return err
		})},
		{"protocol", r.text((*string)(&v.Proto))},
	}
	known = append(known, r.serviceFields(syntax.ServiceFields(), &v)...)
	known = append(known, field{"check", r.check(&v)}, field{"reals", r.reals(&v, spec)},
		field{"cluster", r.flag(&cluster)},
		field{"ingress", r.words(func(word string) error { ingress = append(ingress, word); return nil })})
	r.object(n, path, known)
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

// declaredService returns where a service is declared, and whether it is.
func (r *reader) declaredService(name string) (at spot, declared bool) {
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

// serviceFields returns the parsers of the fields that are words.
func (r *reader) serviceFields(all []syntax.ServiceField, v *model.VirtualService) []field {
	var known []field
	for _, f := range all {
		known = append(known, field{f.Name, r.parsed(func(word string) error { return f.Set(v, word) })})
	}
	return known
}

// check parses a check: an object, or only its type.
func (r *reader) check(v *model.VirtualService) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		all := syntax.CheckFields()
		if n = followed(n); n.Kind == yaml.ScalarNode {
			r.word(n, path, func(word string) error { return all[0].Set(v, word) })
			return
		}
		command := r.words(func(word string) error { v.Check.Command = append(v.Check.Command, word); return nil })
		before := len(r.mistakes)
		r.object(n, path, append(r.serviceFields(all, v), field{"command", command}))
		if err := syntax.TypedCheck(v.Check); err != nil && len(r.mistakes) == before {
			r.mistake(n, path, "%v", err)
		}
	}
}

// reals parses real servers. Each is a word as for --real, or an object.
func (r *reader) reals(v *model.VirtualService, spec string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		r.each(n, path, func(n *yaml.Node, path string) {
			real := model.RealServer{Weight: 1}
			if n.Kind == yaml.MappingNode {
				r.real(n, path, &real)
			} else {
				r.word(n, path, func(word string) (err error) { real, err = syntax.Real(word); return err })
			}
			r.spots[fmt.Sprintf("%s.reals[%d]", spec, len(v.Reals))] = spot{r.file, n, path}
			v.Reals = append(v.Reals, real)
		})
	}
}

func (r *reader) real(n *yaml.Node, path string, real *model.RealServer) {
	before := len(r.mistakes)
	r.object(n, path, []field{
		{"address", r.parsed(address(&real.Address))},
		{"label", r.text(&real.Select.Label)},
		{"name", r.text(&real.Select.Name)},
		{"network", r.text(&real.Select.Network)},
		{"port", number(r, 16, &real.Port)},
		{"weight", r.parsed(func(word string) (err error) {
			if real.Weight, err = strconv.Atoi(word); err != nil {
				return fmt.Errorf("weight %q: want 0 to %d", word, model.MaxWeight)
			}
			return nil
		})},
		{"state", r.parsed(func(word string) error {
			if word != string(model.RealDraining) && word != string(model.RealDown) {
				return errors.New("want draining or down, or leave it out")
			}
			real.State = model.RealState(word)
			return nil
		})},
	})
	if len(r.mistakes) == before && real.Address.IsValid() == !real.Select.IsZero() {
		r.mistake(n, path, "want an address or a selector (label, name, network), and not both")
	}
}
