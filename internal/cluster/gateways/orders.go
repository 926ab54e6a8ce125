package gateways

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/member"
	"fairlead/internal/cluster/publisher"
	"fairlead/internal/cluster/record"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

// part is the part of a Spec with the objects of the cluster.
const part = "cluster.gateway"

// Apply makes the objects of a set of files those that a Spec declares: it creates, changes and removes them for
// all nodes. The set is the same one on all hosts. In a dry run it only returns the changes. If there are
// mistakes, the Fault wraps api.Mistakes, and nothing changes. Its code is Conflict for objects of another set.
func (g *Gateways) Apply(ctx context.Context, declared api.Spec, dry bool) ([]api.Change, error) {
	var c gateway.Config
	if declared.ClusterGateway != nil {
		c = *declared.ClusterGateway
	}
	some := len((&model.Gateway{Config: c}).Objects()) > 0
	g.mu.Lock()
	snapshot := g.snapshot
	g.mu.Unlock()
	switch {
	case !some && (snapshot == nil || declared.Set == ""):
		return nil, nil // no cluster has objects of the set
	case snapshot == nil:
		err := member.NoRecords()
		return nil, mistaken(api.CodeOf(err), "these objects belong to a cluster, and "+err.Error())
	case declared.Set == "":
		return nil, mistaken(api.Invalid, "objects of a cluster need a set with a name, which is the same on all hosts: "+
			"add e.g. name: shop to the file")
	}
	d := &declaration{set: declared.Set, snapshot: snapshot, want: map[string]object{}, values: map[string][]byte{}}
	d.read(c)
	d.compose(g.cfg.Check)
	if len(d.mistakes) > 0 {
		code := api.Invalid
		if d.conflict {
			code = api.Conflict
		}
		return nil, &api.Fault{Code: code, Err: d.mistakes}
	}
	changes, txns := d.changes()
	for _, t := range txns {
		if dry {
			break
		}
		if err := g.commit(ctx, t); err != nil {
			return nil, err
		}
	}
	return changes, nil
}

// mistaken returns a mistake of the whole declaration.
func mistaken(code api.Code, text string) error {
	return &api.Fault{Code: code, Err: api.Mistakes{{At: part, Text: text}}}
}

// commit commits the changes of objects.
func (g *Gateways) commit(ctx context.Context, t kv.Txn) error {
	limited, cancel := context.WithTimeout(ctx, publisher.Limit)
	defer cancel()
	result, err := g.cfg.Store.Commit(limited, t)
	if err != nil {
		return fmt.Errorf("change the gateway of the cluster: %w: apply the files again", err)
	}
	if !result.Committed {
		return api.Faultf(api.Conflict, "change the gateway of the cluster: its objects were changed meanwhile: apply the "+
			"files again")
	}
	return nil
}

// declaration is what a set of files declares.
type declaration struct {
	set      string
	snapshot kv.Snapshot
	// want are the objects, and values their records, by key.
	want     map[string]object
	values   map[string][]byte
	mistakes api.Mistakes
	conflict bool
}

func (d *declaration) mistake(section, name string, err error) {
	d.mistakes = append(d.mistakes, api.Mistake{At: part + "." + section + "." + name, Text: err.Error()})
}

// read makes records of the declared objects, and checks each of them.
func (d *declaration) read(c gateway.Config) {
	for _, o := range (&model.Gateway{Config: c}).Objects() {
		if _, known := kindIn(o.Section); !known {
			d.mistake(o.Section, o.Name, errors.New("certificates are those of each host: declare them below gateway, or let a "+
				"resolver of each host obtain them"))
			continue
		}
		spec, err := json.Marshal(o.Value)
		if err != nil {
			d.mistake(o.Section, o.Name, err)
			continue
		}
		key := record.Key(record.Gateway, o.Section, o.Name)
		e := kv.Entry{Key: key, Value: record.Encode(record.GatewayObject{Spec: spec, Set: d.set})}
		have := read(e)
		if have.err == nil {
			have.err = d.free(key)
		}
		if have.err != nil {
			d.mistake(o.Section, o.Name, have.err)
			continue
		}
		d.want[key], d.values[key] = have, e.Value
	}
}

// free returns an error if another set of files declares the object.
func (d *declaration) free(key string) error {
	r, exists, err := record.Get[record.GatewayObject](d.snapshot, key)
	if err != nil || !exists || r.Set == d.set {
		return nil
	}
	d.conflict = true
	return fmt.Errorf("the cluster has it already, declared by the set of files %s: choose another name, or "+
		"remove it there", r.Set)
}

// compose checks the objects together with those of other sets.
func (d *declaration) compose(check func(gateway.Config) []model.GatewayProblem) {
	if len(d.mistakes) > 0 {
		return
	}
	var all gateway.Config
	objects, count := all.Objects(), len(d.want)
	for e := range d.snapshot.Under(record.Gateway) {
		if o := read(e); o.err == nil && o.set != d.set {
			o.put(objects)
			count++
		}
	}
	if count > maxObjects {
		d.mistakes = append(d.mistakes, api.Mistake{At: part,
			Text: fmt.Sprintf("the cluster would have %d objects: want at most %d", count, maxObjects)})
		return
	}
	own := map[[2]string]object{}
	for _, o := range d.want {
		o.put(objects)
		own[[2]string{strings.ToLower(o.kind.name), o.name}] = o
	}
	c := model.ClusterGateway{Config: all}
	newServers(d.snapshot, "").complete(&c) // it notes the networks that are missing
	for _, p := range slices.Concat(c.Problems, check(all)) {
		if o, mine := own[[2]string{strings.ToLower(p.Kind), p.Name}]; mine {
			d.mistake(o.kind.section, o.name, errors.New(p.Text))
		}
	}
}

// changes returns the changes, and the transactions that make them: what routers use comes before them, and
// routers are removed before it.
func (d *declaration) changes() (changes []api.Change, txns []kv.Txn) {
	before := map[string]object{}
	for e := range d.snapshot.Under(record.Gateway) {
		if o := read(e); o.set == d.set && o.kind.section != "" {
			before[e.Key] = o
		}
	}
	var steps []kv.Entry // with the revisions of the earlier records
	add := func(action api.Action, o object, e kv.Entry) {
		changes = append(changes, api.Change{Action: action, Kind: "gateway " + o.kind.name, Name: o.name + "@cluster"})
		steps = append(steps, e)
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, wanted := d.want[key]; !wanted {
			add(api.Removed, before[key], kv.Entry{Key: key, Revision: before[key].entry.Revision})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(d.want)) {
		have, exists := before[key]
		step := kv.Entry{Key: key, Value: d.values[key], Revision: have.entry.Revision}
		switch {
		case !exists:
			add(api.Created, d.want[key], step)
		case !bytes.Equal(have.entry.Value, d.values[key]):
			add(api.Changed, d.want[key], step)
		}
	}
	slices.SortStableFunc(steps, func(a, b kv.Entry) int { return turn(a) - turn(b) })
	return changes, transactions(steps)
}

// turn returns when a step is made.
func turn(step kv.Entry) int {
	router := strings.Contains(step.Key, ".routers/")
	switch {
	case step.Value != nil && !router:
		return 0
	case step.Value != nil:
		return 1
	case router:
		return 2
	}
	return 3
}

// transactions divides steps into transactions that the store can commit.
func transactions(steps []kv.Entry) (all []kv.Txn) {
	size := kv.MaxBytes
	for _, e := range steps {
		if size += len(e.Key)*2 + len(e.Value); size > kv.MaxBytes/2 || len(all[len(all)-1].Then) == changedAtOnce {
			all, size = append(all, kv.Txn{}), len(e.Key)*2+len(e.Value)
		}
		t := &all[len(all)-1]
		t.If = append(t.If, kv.Condition{Key: e.Key, Revision: e.Revision})
		t.Then = append(t.Then, kv.Change{Key: e.Key, Value: e.Value})
	}
	return all
}
