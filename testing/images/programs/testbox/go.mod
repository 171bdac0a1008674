module tools/testbox

go 1.26.0
