package services

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cluster/kv"
	"fairlead/internal/cluster/record"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/model"
)

// The limits of one Apply.
const (
	// mostApplied is how many services can change: the transaction has two conditions for each.
	mostApplied = kv.MaxOperations/2 - 1
	// applyLimit is how long Apply waits for the records that another host has changed meanwhile.
	applyLimit = 10 * time.Second
)

// kind is the kind of object of the changes.
const kind = "cluster service"

// change is the change of a service's record from earlier, which does not exist if it has no revision.
type change struct {
	api.Change
	earlier kv.Entry
	value   []byte
}

// Apply makes the services of the cluster that a set of files declares equal to those of a Spec, in one
// transaction. The set is the same one on all hosts. Services that it no longer declares are removed; those of
// other sets and of commands stay. In a dry run it only returns the changes. If services have mistakes, the
// Fault wraps api.Mistakes, and nothing is changed. The same is true if the store does not answer.
func (s *Services) Apply(ctx context.Context, declared api.Spec, dry bool) ([]api.Change, error) {
	ctx, cancel := context.WithTimeout(ctx, applyLimit)
	defer cancel()
	for {
		snapshot, _, err := s.latest.Current()
		if err != nil {
			if len(declared.ClusterServices) == 0 {
				return nil, nil // no cluster has services of the set
			}
			return nil, mistaken(api.CodeOf(err), 0, fmt.Errorf("it belongs to a cluster, and %w", err))
		}
		all, err := changesOf(snapshot, declared)
		if err != nil || dry || len(all) == 0 {
			return shownChanges(all), err
		}
		t := transaction(all)
		result, _, err := kv.Repeat(ctx, s.cfg.Store, t)
		if err != nil {
			return nil, fmt.Errorf("apply services of the cluster: %w: apply again", err)
		}
		if result.Committed {
			return shownChanges(all), nil
		}
		// Another host has changed a service meanwhile, or an answer was lost.
		if !s.latest.Await(ctx, 0, func(now kv.Snapshot) bool { return !t.Holds(now) }) && ctx.Err() != nil {
			return nil, api.Faultf(api.Conflict, "apply services of the cluster: another host changes them: apply again")
		}
	}
}

// mistaken returns the mistake of a declared service.
func mistaken(code api.Code, index int, err error) error {
	return &api.Fault{Code: code, Err: api.Mistakes{{At: part(index), Text: err.Error()}}}
}

func part(index int) string { return fmt.Sprintf("clusterServices[%d]", index) }

func shownChanges(all []change) (list []api.Change) {
	for _, c := range all {
		list = append(list, c.Change)
	}
	return list
}

func transaction(all []change) (t kv.Txn) {
	for _, c := range all {
		key := record.Key(record.Services, c.Name)
		t.If = append(t.If, kv.Condition{Key: key, Revision: c.earlier.Revision, Value: c.earlier.Value})
		t.Then = append(t.Then, kv.Change{Key: key, Value: c.value})
	}
	return t
}

// changesOf returns the changes that make the set's services equal to the declared ones, in the order of
// their names.
func changesOf(s kv.Snapshot, declared api.Spec) ([]change, error) {
	if declared.Set == "" && len(declared.ClusterServices) > 0 {
		return nil, mistaken(api.Invalid, 0, errors.New("services of a cluster need a set with a name, which is the same "+
			"on all hosts: add e.g. name: shop to the file"))
	}
	if declared.Set == "" {
		return nil, nil
	}
	all, mistakes := wanted(s, declared)
	all = append(all, unwanted(s, declared)...)
	next := after(s, all)
	for i, v := range declared.ClusterServices {
		if err := check(next, declaredRecord(declared.Set, v)); err != nil {
			mistakes = append(mistakes, api.Mistake{At: part(i), Text: fmt.Sprintf("service %s: %v", v.Name, err)})
		}
	}
	if len(mistakes) > 0 {
		return nil, &api.Fault{Code: api.Invalid, Err: mistakes}
	}
	if len(all) > mostApplied {
		return nil, api.Faultf(api.Invalid, "apply services of the cluster: %d of them change, and a transaction of etcd "+
			"can change %d: divide the set", len(all), mostApplied)
	}
	slices.SortFunc(all, func(a, b change) int { return slices.Compare([]string{a.Name}, []string{b.Name}) })
	return all, nil
}

// declaredRecord returns the record of a service that a set of files declares.
func declaredRecord(set string, v api.ClusterService) record.Service {
	r := record.Service{Spec: completed(v.VirtualService), Ingress: v.Ingress}
	r.Spec.Origin = model.FileSet(set)
	return r
}

// wanted returns the changes of declared services. It is a mistake to declare a service of another origin
// with different settings.
func wanted(s kv.Snapshot, declared api.Spec) (all []change, mistakes api.Mistakes) {
	for i, v := range declared.ClusterServices {
		key, want := record.Key(record.Services, v.Name), declaredRecord(declared.Set, v)
		e, exists := s.Get(key)
		have, err := record.Decode[record.Service](e)
		switch {
		case !exists:
			all = append(all, change{api.Change{Action: api.Created, Kind: kind, Name: v.Name}, e, record.Encode(want)})
		case err != nil:
			mistakes = append(mistakes, api.Mistake{At: part(i), Text: err.Error()})
		case sameSettings(have, want) && have.Spec.Origin == model.FromCommand:
			all = append(all, change{api.Change{Action: api.Adopted, Kind: kind, Name: v.Name}, e, record.Encode(want)})
		case sameSettings(have, want):
		case have.Spec.Origin != want.Spec.Origin && !(declared.Adopt && have.Spec.Origin == model.FromCommand):
			text := spec.DiffersFromFile("service "+v.Name+" of the cluster", have.Spec.Origin,
				"`fairlead service rm --cluster "+v.Name+"`").Error()
			mistakes = append(mistakes, api.Mistake{At: part(i), Text: text})
		default:
			all = append(all, change{api.Change{Action: api.Changed, Kind: kind, Name: v.Name}, e, record.Encode(want)})
		}
	}
	return all, mistakes
}

// sameSettings reports whether two records differ at most in who declares them.
func sameSettings(a, b record.Service) bool {
	a.Spec.Origin = b.Spec.Origin
	return shown(a).Equal(shown(b))
}

// unwanted returns the removals of the services that the set has declared and does not declare any more.
func unwanted(s kv.Snapshot, declared api.Spec) (all []change) {
	for e, have := range record.Each[record.Service](s, record.Services) {
		stays := slices.ContainsFunc(declared.ClusterServices, func(v api.ClusterService) bool {
			return v.Name == have.Spec.Name
		})
		if have.Spec.Origin == model.FileSet(declared.Set) && !stays {
			all = append(all, change{api.Change{Action: api.Removed, Kind: kind, Name: have.Spec.Name}, e, nil})
		}
	}
	return all
}

// after returns the snapshot with the changes.
func after(s kv.Snapshot, all []change) kv.Snapshot {
	entries := kv.ByKey(slices.Collect(s.Under("")))
	for _, c := range all {
		key := record.Key(record.Services, c.Name)
		if delete(entries, key); c.value != nil {
			entries[key] = kv.Entry{Key: key, Value: c.value, Revision: s.Revision()}
		}
	}
	return kv.NewTable(s.Revision(), slices.Collect(maps.Values(entries)))
}
