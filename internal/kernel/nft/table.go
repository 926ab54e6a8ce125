package nft

import (
	"sync"

	"fairlead/internal/plan"
)

// The tables that are the same on all hosts.
var (
	table        = sync.OnceValue(func() definition { return compileTable(plan.Mark, plan.TableText) })
	serviceTable = sync.OnceValue(func() definition { return compileTable(plan.ServicesTable, plan.ServiceTableText) })
	ipvsTable    = sync.OnceValue(func() definition { return compileTable(plan.IPVSTableName, plan.IPVSTableText) })
	flowsTable   = sync.OnceValue(func() definition { return compileTable(plan.FlowtableName, plan.FlowtableText) })
)
