"""Why devices can't go on.

counterparts.py: test_hints.py, test_golden.py
facts/findings.py, report/json.py, report/text.py: test_report.py, test_golden.py
report/html_graph.py: test_report_page.py
"""
