package doctor

// trial finds something on each host.
func trial(Host) []Finding { return []Finding{{Severity: Note, Seen: "a trial"}} }
