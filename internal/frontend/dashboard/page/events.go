package page

import (
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/frontend/dashboard/table"
	"fairlead/internal/wording"
)

func events() Page {
	return Page{Path: "events", Title: "Events", needs: hasDaemon, command: fixed("fairlead events"),
		Question: "What happened on the host without a request: repairs, failures, real servers, networks, nodes. " +
			"The daemon keeps the last 500 events.",
		view: func(v *Visit) []Section {
			all, ok := get(v, v.Sources.Events, "events")
			if !ok {
				return nil
			}
			return []Section{{ID: "events", Table: v.tabled(eventTable(all))}}
		}}
}

// badEvents and warnEvents are the kinds of events that need attention.
var (
	badEvents = map[api.EventKind]bool{api.Unhealed: true, api.RealIsDown: true, api.RealRemoved: true,
		api.QuorumLost: true, api.NetworkUnavailable: true, api.EtcdLost: true, api.ClusterFrozen: true,
		api.AddressLost: true, api.AddressConflict: true, api.NodeRemoved: true}
	warnEvents = map[api.EventKind]bool{api.Healed: true, api.Conflicting: true, api.SorryUsed: true,
		api.PanicBegun: true, api.RealReached: true, api.ClientsReset: true, api.NodeLeft: true, api.NodeDrained: true,
		api.DrainBegun: true, api.AddressReleased: true}
)

// eventState says how good an event is.
func eventState(k api.EventKind) table.State {
	switch {
	case badEvents[k]:
		return table.Bad
	case warnEvents[k]:
		return table.Warn
	}
	return table.OK
}

// eventTable lists events, the newest first.
func eventTable(all []api.Event) table.Table {
	return table.Table{Caption: "Events", N: len(all), Empty: "There is no event since the daemon started.",
		Columns: table.Columns("ago=Ago|event=Event|object=Object|detail=Detail"),
		Row: func(i int) table.Row {
			e := all[len(all)-1-i]
			cells := table.Texts("", string(e.Kind), e.Object, wording.OrDash(wording.About(e)))
			cells[0].Time, cells[1].State = e.Time, eventState(e.Kind)
			return table.Row{ID: table.ID("event", e.Time.String(), string(e.Kind), e.Object), Cells: cells}
		}}
}

// eventSection lists the events of an object, and of its parts. It returns nothing if they could not be read.
func eventSection(v *Visit, object string) []Section {
	all, ok := get(v, v.Sources.Events, "events")
	if !ok {
		return nil
	}
	var some []api.Event
	for _, e := range all {
		if e.Object == object || strings.HasPrefix(e.Object, object+" ") {
			some = append(some, e)
		}
	}
	t := eventTable(some)
	t.ID, t.Caption, t.Empty = "e", "Events of "+object, "None of the last 500 events is about it."
	return []Section{{ID: "events", Title: "What happened to it", Table: v.tabled(t)}}
}
